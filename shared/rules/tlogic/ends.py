"""Where bodies lead from an entity, within a window of time."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shared.contracts.rules import Rule
from shared.rules.tlogic.edges import Edges, Integers
from shared.rules.tlogic.paths import path_of


class Turn(NamedTuple):
    """One step of a body."""

    relation: int
    """Number among the edges."""
    visited: int | None
    """The earlier place on the path whose entity the step must lead to."""
    kept: tuple[int, ...]
    """The earlier places whose entities later steps ask for."""


Turns = tuple[Turn, ...]


class Reached(NamedTuple):
    """Where the beginning of a body leads; one row for each fact that it may end with."""

    kept: Mapping[int, Integers]
    """Entities by place."""
    entities: Integers
    ranks: Integers
    """Of the last fact."""
    first: Integers
    """Rank of the first fact, where there are several ways the latest."""


def turns_of(rule: Rule, relations: Mapping[str, int]) -> Turns:
    """The body as turns; `relations` gives their numbers, and an inverse relation's is `len(relations)` more.

    Raises:
        ValueError: see `path_of`.
        KeyError: the body names another relation.
    """
    path = path_of(rule)
    variables = [0, *(variable for _, variable in path)]
    seen = [variables.index(variable) for variable in variables]  # the first place of each variable
    visited = [place if place < number else None for number, place in enumerate(seen)][1:]
    return tuple(
        Turn(
            relations[relation] + (0 if forward else len(relations)),
            visited[number],
            tuple(sorted({place for place in visited[number + 1 :] if place is not None and place <= number})),
        )
        for number, ((relation, forward), _) in enumerate(path)
    )


class Ends:
    """Of one entity and window; beginnings that bodies share are followed once."""

    def __init__(self, edges: Edges, entity: int, first: int, before: int) -> None:
        """The window holds the ranks from `first` (included) to `before` (excluded)."""
        self._edges, self._before = edges, before
        start = np.array([entity])
        self._reached: dict[Turns, Reached] = {(): Reached({}, start, np.array([first]), np.array([-1]))}

    def of(self, turns: Turns) -> tuple[Integers, Integers]:
        """Where the body ends: distinct entities, and for each the latest rank of a body's first fact."""
        reached = self._follow(turns)
        order = np.lexsort((-reached.first, reached.entities))
        entities, places = np.unique(reached.entities[order], return_index=True)
        return entities, reached.first[order][places]

    def _follow(self, turns: Turns) -> Reached:
        if turns not in self._reached:
            before = self._follow(turns[:-1])
            self._reached[turns] = self._turn(before, turns[-1], len(turns)) if len(before.ranks) else before
        return self._reached[turns]

    def _turn(self, reached: Reached, turn: Turn, place: int) -> Reached:
        """Each fact that continues a row is looked at once, with the latest beginning among those that it continues.

        So what is held does not grow with the number of bodies.
        """
        edges, times = self._edges, len(self._edges.times)
        order = np.lexsort((reached.ranks, reached.entities, *reached.kept.values()))
        visited = {**reached.kept, place - 1: reached.entities}
        groups = np.stack([column[order] for column in visited.values()])
        begins = np.append(True, (groups[:, 1:] != groups[:, :-1]).any(axis=0))
        group, heads = np.cumsum(begins) - 1, order[begins]
        ranks, latest = reached.ranks[order], np.maximum.accumulate(group * times + reached.first[order])
        spans = edges.by_relation.between(
            turn.relation * edges.entities + reached.entities[heads], reached.ranks[heads], self._before
        )
        number, found = spans.places()
        found = edges.by_relation.edges[found]
        if turn.visited is not None:
            kept = edges.object[found] == visited[turn.visited][heads][number]
            number, found = number[kept], found[kept]
        continued = np.searchsorted(group * times + ranks, number * times + edges.rank[found], side="right") - 1
        return Reached(
            {earlier: visited[earlier][heads][number] for earlier in turn.kept},
            edges.object[found],
            edges.rank[found],
            edges.rank[found] if place == 1 else latest[continued] - number * times,
        )
