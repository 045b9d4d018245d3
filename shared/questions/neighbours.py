"""Draw hard negatives: facts of a question's entity or relation that are not among its oracle documents."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from shared.questions.facts import ALWAYS
from shared.questions.names import names_of
from shared.rules.graph import Graph
from shared.samples import FactQuery

MOST = 10
"""Upper bound of a question's negatives."""
Numbers = NDArray[np.int64]


class Neighbours:
    """Indexes a graph's facts by entity and by relation."""

    def __init__(self, graph: Graph) -> None:
        self._names = names_of(graph)
        self._times = graph.times
        self._columns = tuple(_Column(column) for column in graph.triples.T)

    def draw(self, query: FactQuery, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[str]:
        """Draw up to `MOST` ids of facts before a time that are not among `oracle`.

        Half of them are of the query's entity, if it has so many, and the others of its relation.
        """
        subjects, relations, objects = self._columns
        entity, relation = self._names.entities.get(query.entity), self._names.relations.get(query.relation)
        of_entity = self._draw_usable(np.concatenate((subjects.of(entity), objects.of(entity))), before, oracle, rng)
        of_relation = self._draw_usable(relations.of(relation), before, oracle, rng)
        others = [each for each in of_relation if each not in set(of_entity)]
        own = of_entity[: max(MOST // 2, MOST - len(others))]
        return [str(each) for each in (*own, *others[: MOST - len(own)])]

    def _draw_usable(self, facts: Numbers, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[int]:
        """Return as many facts as `draw` may need, in random order."""
        known = np.unique(facts)
        if self._times is not None and before != ALWAYS:
            known = known[self._times[known] < before]
        drawn = rng.permutation(known)[: 2 * MOST + len(oracle)].tolist()
        return [each for each in drawn if str(each) not in oracle]


class _Column:
    """Finds the rows that have a value."""

    def __init__(self, values: NDArray[np.int32]) -> None:
        self._order = np.argsort(values, kind="stable")
        self._values = values[self._order]

    def of(self, value: int | None) -> Numbers:
        """Return the rows with this value; none if it is None."""
        if value is None:
            return self._order[:0]
        first, end = np.searchsorted(self._values, [value, value + 1])
        return self._order[first:end]
