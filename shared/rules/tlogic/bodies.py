"""How often bodies hold, and how often their head follows: all bodies counted, or some of them sampled."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.tlogic.edges import Edges, Integers, Spans

AT_ONCE = 1 << 18
"""Bodies that are held together."""


class Shapes(NamedTuple):
    """Bodies of one length: relations from entity 0 to entity 1 of the head, and which entities are equal."""

    relations: Integers
    """(bodies, length)"""
    equalities: Integers
    """(bodies,): see `equalities`."""


class Counts(NamedTuple):
    """By body."""

    size: Integers
    """How many distinct ones there are."""
    support: Integers
    """How many of them a fact of the head follows, strictly later than the last of their facts."""


class Heads:
    """When a fact of the head is last true of two entities."""

    def __init__(self, edges: Edges, heads: Integers) -> None:
        """`heads` are the edges of the head's relation."""
        pairs = edges.pairs(edges.subject[heads], edges.object[heads])
        order = np.lexsort((-edges.rank[heads], pairs))
        self._pairs, first = np.unique(pairs[order], return_index=True)
        self._last = edges.rank[heads][order][first]

    def follow(self, pairs: Integers, ranks: Integers) -> NDArray[np.bool_]:
        """Whether a fact of the head is later than `ranks`."""
        number = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        last = np.where(self._pairs[number] == pairs, self._last[number], -1)
        later: NDArray[np.bool_] = last > ranks
        return later


def equalities(edges: Edges, paths: Integers) -> Integers:
    """Which entities of each path are equal: a bit for each two of its places, 0 where all differ."""
    entities = np.column_stack((edges.subject[paths[:, :1]], edges.object[paths]))
    first, second = np.triu_indices(entities.shape[1], 1)
    bits: Integers = (entities[:, first] == entities[:, second]) @ (1 << np.arange(len(first)))
    return bits


def sample(edges: Edges, shapes: Shapes, heads: Heads, samples: int, rng: np.random.Generator) -> Counts:
    """Of each body `samples` walks along its relations, no step earlier than the one before; duplicates count once.

    As in TLogic, walks that end before the body does are lost, and a step is drawn from those that are possible, so
    that bodies with few continuations are found more often than others.
    """
    step = max(1, AT_ONCE // samples)
    parts = [
        _sample(edges, Shapes(*(column[start : start + step] for column in shapes)), heads, samples, rng)
        for start in range(0, len(shapes.equalities), step)
    ]
    return Counts(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sample(edges: Edges, shapes: Shapes, heads: Heads, samples: int, rng: np.random.Generator) -> Counts:
    body = np.repeat(np.arange(len(shapes.equalities)), samples)
    spans = edges.of_relations(shapes.relations[body, 0])
    paths = edges.by_relation.edges[rng.integers(spans.start, spans.stop)][:, None]
    for place in range(1, shapes.relations.shape[1]):
        spans = edges.following(paths[:, -1], shapes.relations[body, place])
        kept = np.flatnonzero(spans.start < spans.stop)
        drawn = edges.by_relation.edges[rng.integers(spans.start[kept], spans.stop[kept])]
        body, paths = body[kept], np.column_stack((paths[kept], drawn))
    distinct = np.unique(np.column_stack((body, paths)), axis=0)
    return _count(edges, shapes, heads, distinct[:, 0], distinct[:, 1:])


def count(edges: Edges, shapes: Shapes, heads: Heads) -> Counts:
    """All bodies, `AT_ONCE` at a time."""
    size, support = np.zeros_like(shapes.equalities), np.zeros_like(shapes.equalities)
    for body, relations in enumerate(shapes.relations):
        one = Shapes(relations[None, :], shapes.equalities[body : body + 1])
        (start,), (stop,) = edges.of_relations(relations[:1])
        for paths in _extend(edges, edges.by_relation.edges[start:stop, None], relations[1:]):
            found = _count(edges, one, heads, np.zeros(len(paths), np.int64), paths)
            size[body] += found.size[0]
            support[body] += found.support[0]
    return Counts(size, support)


def _extend(edges: Edges, paths: Integers, relations: Integers) -> Iterator[Integers]:
    """All continuations of the paths along the relations."""
    if not len(relations):
        yield paths
        return
    spans = edges.following(paths[:, -1], np.broadcast_to(relations[0], len(paths)))
    for part in _parts(spans.stop - spans.start):
        row, place = Spans(spans.start[part], spans.stop[part]).places()
        following = edges.by_relation.edges[place]
        yield from _extend(edges, np.column_stack((paths[part][row], following)), relations[1:])


def _parts(lengths: Integers) -> Iterator[slice]:
    """Neighbouring rows whose lengths sum up to `AT_ONCE` at most, or a single row."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = ends[start] - lengths[start]
        stop = max(start + 1, int(np.searchsorted(ends, before + AT_ONCE, side="right")))
        yield slice(start, stop)
        start = stop


def _count(edges: Edges, shapes: Shapes, heads: Heads, body: Integers, paths: Integers) -> Counts:
    """Of distinct paths those that are of their body's shape.

    As in TLogic, a body that names no entity twice is one of paths that do, too; any other asks for exactly its
    equalities.
    """
    wanted = shapes.equalities[body]
    kept = np.flatnonzero((wanted == 0) | (wanted == equalities(edges, paths)))
    body, paths = body[kept], paths[kept]
    follows = heads.follow(
        edges.pairs(edges.subject[paths[:, 0]], edges.object[paths[:, -1]]), edges.rank[paths[:, -1]]
    )
    bodies = len(shapes.equalities)
    return Counts(np.bincount(body, minlength=bodies), np.bincount(body[follows], minlength=bodies))
