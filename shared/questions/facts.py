"""Look up a graph's facts by an entity and a relation in either direction.

A label is a relation read in a direction: relation r leads from subject to object with label r, and back with label
r + relations.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph

LOOKED = 1000
"""Upper bound of the facts read for one entity and label, the latest first; some entities have a hundred thousand."""
CACHED = 1 << 12
"""Look-ups kept in the cache."""
ALWAYS = np.iinfo(np.int64).max
"""Later than any fact."""


class NumberedFact(NamedTuple):
    """A fact in numbers."""

    subject: int
    object: int
    time: int
    """0 in a static graph."""
    number: int
    """Number of the fact in the graph, and of its document in the corpus."""


class Facts:
    """Holds each fact once per end, sorted by entity, label, descending time and number."""

    def __init__(self, graph: Graph) -> None:
        self.relations = len(graph.relations)
        subject, relation, object_ = graph.triples.T.astype(np.int64)
        times = np.zeros(len(subject), np.int64) if graph.times is None else graph.times
        keys = np.append(self._key(subject, relation), self._key(object_, relation + self.relations))
        facts = np.tile(np.arange(len(subject)), 2)
        order = np.lexsort((facts, -np.tile(times, 2), keys))
        self._keys, self._facts = keys[order], facts[order]
        self._ends = np.append(object_, subject)[order]
        self._ages = -np.tile(times, 2)[order]
        self.before = lru_cache(CACHED)(self._before)
        """Returns up to `LOOKED` facts of an entity and label before a time, the latest first."""

    def _key(self, entity: NDArray[np.int64], label: NDArray[np.int64]) -> NDArray[np.int64]:
        return entity * (2 * self.relations) + label

    def at(self, entity: int, label: int, time: int, most: int) -> list[int]:
        """Return the other ends of up to `most` facts at this time."""
        start, stop = self._places(entity, label)
        first, last = start + np.searchsorted(self._ages[start:stop], [-time, 1 - time])
        found: list[int] = self._ends[first : min(last, first + most)].tolist()
        return found

    def links(self, entity: int, others: Sequence[int], before: int, most: int) -> list[int]:
        """Return the sorted numbers of the latest `most` facts before a time between the entity and the others."""
        start, stop = np.searchsorted(self._keys, [entity * 2 * self.relations, (entity + 1) * 2 * self.relations])
        found = np.flatnonzero(np.isin(self._ends[start:stop], others) & (self._ages[start:stop] > -before)) + start
        facts, place = np.unique(self._facts[found], return_index=True)
        latest = np.lexsort((facts, self._ages[found][place]))[:most]
        chosen: list[int] = np.sort(facts[latest]).tolist()
        return chosen

    def _places(self, entity: int, label: int) -> tuple[int, int]:
        key = entity * (2 * self.relations) + label
        start, stop = np.searchsorted(self._keys, [key, key + 1]).tolist()
        return start, stop

    def _before(self, entity: int, label: int, time: int) -> tuple[NumberedFact, ...]:
        start, stop = self._places(entity, label)
        start += int(np.searchsorted(self._ages[start:stop], -time, side="right"))
        chosen = slice(start, min(stop, start + LOOKED))
        rows = zip(self._ends[chosen].tolist(), self._ages[chosen].tolist(), self._facts[chosen].tolist(), strict=True)
        if label < self.relations:
            return tuple(NumberedFact(entity, end, -age, number) for end, age, number in rows)
        return tuple(NumberedFact(end, entity, -age, number) for end, age, number in rows)
