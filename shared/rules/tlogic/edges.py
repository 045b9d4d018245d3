"""A temporal graph's facts as edges in both directions, sorted so that a whole set of steps is looked up at once."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph, steps

Integers = NDArray[np.int64]
UNDERFLOW = 1000.0
"""exp(-1000) is 0: no gap between two times needs to be longer than this many steps."""


class Spans(NamedTuple):
    """Runs of places in `Sorted.edges`, each from `start` (included) to `stop` (excluded)."""

    start: Integers
    stop: Integers

    def places(self) -> tuple[Integers, Integers]:
        """All places, span after span: the number of the span, and the place."""
        lengths = self.stop - self.start
        number = np.repeat(np.arange(len(lengths)), lengths)
        begun = np.cumsum(lengths) - lengths
        return number, np.arange(len(number)) + (self.start - begun)[number]


class Sorted:
    """Edges in the order of their group, and within a group of their time."""

    def __init__(self, groups: Integers, ranks: Integers, clock: NDArray[np.float64]) -> None:
        """`groups` and `ranks` are those of all edges by number; `clock` is the time of each rank."""
        self.edges = np.lexsort((ranks, groups))
        self.places = np.empty_like(self.edges)
        """Where each edge stands in `edges`."""
        self.places[self.edges] = np.arange(len(self.edges))
        self._names, first, number = np.unique(groups[self.edges], return_index=True, return_inverse=True)
        self._starts = np.append(first, len(groups))
        self._times = int(ranks.max(initial=0)) + 1
        self._keys = number * self._times + ranks[self.edges]
        self._clock = clock

    @cached_property
    def log_weights(self) -> NDArray[np.float64]:
        """By place: the logarithm of the sum of exp(time) over the group's edges up to there."""
        sums: NDArray[np.float64] = self._clock[self._keys % self._times]
        before = np.arange(len(sums)) - self._starts[self._keys // self._times]
        reach = 1  # a sum over so many edges is made of two over half as many
        while len(ends := np.flatnonzero(before >= reach)):
            sums[ends] = np.logaddexp(sums[ends], sums[ends - reach])
            reach *= 2
        return sums

    def between(self, groups: Integers, first: Integers | int, before: Integers | int) -> Spans:
        """Of each group the edges whose rank is `first` or later, and earlier than `before`."""
        number = np.searchsorted(self._names, groups)
        is_known = self._names[np.minimum(number, len(self._names) - 1)] == groups
        start = np.searchsorted(self._keys, number * self._times + first)
        stop = np.searchsorted(self._keys, number * self._times + before)
        return Spans(start, np.where(is_known, np.maximum(start, stop), start))

    def from_group(self, first: Integers, last: Integers) -> Spans:
        """The edges of all groups from `first` (included) to `last` (excluded)."""
        return Spans(
            self._starts[np.searchsorted(self._names, first)], self._starts[np.searchsorted(self._names, last)]
        )


class Edges:
    """Fact f is edge f, from subject to object, and edge f + facts, back, of the relation's inverse.

    Relation r has the number r, and its inverse r + relations. Times are ranks: their places among the distinct ones.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises ValueError where the graph is static or empty."""
        self.times, ranks = np.unique(steps(graph), return_inverse=True)
        if not len(self.times):
            raise ValueError("the graph has no facts: there is nothing to mine")
        subject, relation, object_ = graph.triples.T.astype(np.int64)
        self.facts, self.entities, self.relations = len(ranks), len(graph.entities), len(graph.relations)
        self.subject, self.object = np.append(subject, object_), np.append(object_, subject)
        self.relation = np.append(relation, relation + self.relations)
        self.rank = np.append(ranks, ranks).astype(np.int64)
        unsigned = self.times.astype(np.uint64)  # differences of any two 64-bit steps fit
        self.clock = np.append(0.0, np.cumsum(np.minimum(np.diff(unsigned).astype(np.float64), UNDERFLOW)))
        """By rank: the steps since the first time, long gaps shortened."""

    def turned(self, edges: Integers) -> Integers:
        """The same facts in the other direction."""
        return (edges + self.facts) % (2 * self.facts)

    def inverse(self, relations: Integers) -> Integers:
        """The inverse relation's number."""
        return (relations + self.relations) % (2 * self.relations)

    def pairs(self, subjects: Integers, objects: Integers) -> Integers:
        """One number for two entities: the groups of `by_pair`."""
        return subjects * self.entities + objects

    @cached_property
    def by_subject(self) -> Sorted:
        """Grouped by subject."""
        return Sorted(self.subject, self.rank, self.clock)

    @cached_property
    def by_pair(self) -> Sorted:
        """Grouped by subject and object."""
        return Sorted(self.pairs(self.subject, self.object), self.rank, self.clock)

    @cached_property
    def by_relation(self) -> Sorted:
        """Grouped by relation and subject."""
        return Sorted(self.relation * self.entities + self.subject, self.rank, self.clock)

    def of_relations(self, relations: Integers) -> Spans:
        """All edges of each relation, in `by_relation`."""
        return self.by_relation.from_group(relations * self.entities, (relations + 1) * self.entities)

    def following(self, edges: Integers, relations: Integers) -> Spans:
        """The edges of each relation that begin where an edge ends, no earlier than it, in `by_relation`."""
        groups = relations * self.entities + self.object[edges]
        return self.by_relation.between(groups, self.rank[edges], len(self.times))


_LATEST: dict[tuple[int, int], tuple[Graph, Edges]] = {}


def edges_of(graph: Graph) -> Edges:
    """The graph's edges; the latest graph's are kept, because its relations are mined one after the other."""
    key = (id(graph.triples), id(graph.times))
    if key not in _LATEST:
        _LATEST.clear()
        _LATEST[key] = (graph, Edges(graph))  # while the graph is held, nothing else has its ids
    return _LATEST[key][1]
