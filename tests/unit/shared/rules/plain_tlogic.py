"""TLogic once more, in plain loops, from the reference's description: nothing of `shared.rules` is used.

A quad is (subject, relation, object, time); the inverse of relation r is `~r`. A rule's `equal` says for each place on
its path the first place with the same entity, where two places are equal at all, and is empty otherwise.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Quad = tuple[int, int, int, int]


class PlainRule(NamedTuple):
    """A rule without its figures."""

    head: int
    body: tuple[int, ...]
    equal: tuple[int, ...]


class Plain:
    """All quads in both directions."""

    def __init__(self, quads: Sequence[Quad]) -> None:
        self.by_relation: dict[int, list[Quad]] = defaultdict(list)
        self.by_entity: dict[int, list[Quad]] = defaultdict(list)
        self.by_both: dict[tuple[int, int], list[Quad]] = defaultdict(list)
        for s, r, o, t in quads:
            for quad in ((s, r, o, t), (o, ~r, s, t)):
                self.by_relation[quad[1]].append(quad)
                self.by_entity[quad[0]].append(quad)
                self.by_both[quad[0], quad[1]].append(quad)

    def bodies(self, body: tuple[int, ...], equal: tuple[int, ...]) -> Iterator[tuple[Quad, ...]]:
        """All of them."""
        paths: list[tuple[Quad, ...]] = [(edge,) for edge in self.by_relation[body[0]]]
        for relation in body[1:]:
            paths = [
                (*path, edge)
                for path in paths
                for edge in self.by_both.get((path[-1][2], relation), ())
                if edge[3] >= path[-1][3]
            ]
        return (path for path in paths if not equal or equalities(path) == equal)

    def follows(self, head: int, body: Sequence[Quad]) -> bool:
        """Whether a fact of the head comes strictly after the body."""
        facts = self.by_both.get((body[0][0], head), ())
        return any(edge[2] == body[-1][2] and edge[3] > body[-1][3] for edge in facts)


def shape_of(walk: Sequence[Quad]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inverse relations of all but the first edge, reversed, and the equalities of their entities."""
    back = [(o, ~r, s, t) for s, r, o, t in reversed(walk[1:])]
    return tuple(r for _, r, _, _ in back), equalities(back)


def equalities(path: Sequence[Quad]) -> tuple[int, ...]:
    """See the module."""
    entities = [path[0][0], *(edge[2] for edge in path)]
    return tuple(entities.index(entity) for entity in entities) if len(set(entities)) < len(entities) else ()
