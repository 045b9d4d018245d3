"""Supports: how many facts of the head a body explains, counted by joining on the head's own pairs."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.amie.index import Index, Ints, Longs, pair_key
from shared.rules.amie.slices import concatenated_ranges, slices

MOST_JOINED = 1 << 20
"""Rows of an intermediate join, unless a single pair of entities has more."""


class Supports(NamedTuple):
    """Bodies of two atoms by the labels of their edges, each once, in ascending order; and their supports."""

    first: Longs
    second: Longs
    counts: Longs

    def among(self, kept: NDArray[np.bool_]) -> "Supports":
        """Those of them that are kept."""
        return Supports(self.first[kept], self.second[kept], self.counts[kept])

    def rows(self) -> list[tuple[int, int, int]]:
        """First label, second label and support of each."""
        return list(zip(self.first.tolist(), self.second.tolist(), self.counts.tolist(), strict=True))


def count_edges(index: Index, subjects: Ints, objects: Ints) -> Longs:
    """By label: how many of the pairs have such an edge."""
    pairs = _find_pairs(index, subjects, objects)
    lengths = np.diff(index.pair_label_starts)[pairs]
    labels = index.pair_labels[concatenated_ranges(index.pair_label_starts[pairs], lengths)]
    return np.bincount(labels, minlength=index.labels)


def count_parallels(index: Index, subjects: Ints, objects: Ints, allowed: NDArray[np.bool_]) -> Supports:
    """How many of the pairs have edges of two labels, the lower one first; both must be `allowed`."""
    return _add_up(_parallel_parts(index, _find_pairs(index, subjects, objects), allowed), index.labels)


def _parallel_parts(index: Index, pairs: Longs, allowed: NDArray[np.bool_]) -> Iterator[Longs]:
    for part in slices(np.diff(index.pair_label_starts)[pairs] ** 2, MOST_JOINED):
        _, first, second = _join_labels(index, pairs[part], pairs[part])
        kept = (first < second) & allowed[first] & allowed[second]
        yield first[kept].astype(np.int64) * index.labels + second[kept]


def count_paths(index: Index, subjects: Ints, objects: Ints) -> Supports:
    """How many of the pairs a path of two edges joins, by their labels, from subject to object."""
    return _add_up(_path_parts(index, subjects, objects), index.labels)


def _path_parts(index: Index, subjects: Ints, objects: Ints) -> Iterator[Longs]:
    degrees, lengths = np.diff(index.pair_starts), np.diff(index.pair_label_starts)
    for part in slices(np.minimum(degrees[subjects], degrees[objects]), MOST_JOINED):
        numbers, left, right = _join_neighbours(index, subjects[part], objects[part])
        sizes = np.bincount(numbers, lengths[left] * lengths[right], minlength=part.stop - part.start)
        for some in slices(sizes.astype(np.int64), MOST_JOINED):
            hits = slice(*np.searchsorted(numbers, (some.start, some.stop)))
            yield _distinct_paths(index, numbers[hits], left[hits], right[hits])


def _join_neighbours(index: Index, subjects: Ints, objects: Ints) -> tuple[Longs, Longs, Longs]:
    """Of each neighbour that subject and object share: the number of the two, and the pairs that it has with them.

    The neighbours of the one with fewer are looked up among those of the other.
    """
    degrees = np.diff(index.pair_starts)
    forward = degrees[subjects] <= degrees[objects]
    near, far = np.where(forward, subjects, objects), np.where(forward, objects, subjects)
    numbers = np.repeat(np.arange(len(near)), degrees[near])
    near_pairs = concatenated_ranges(index.pair_starts[near], degrees[near])
    keys = pair_key(far[numbers], index.pair_targets[near_pairs], index.entities)
    far_pairs = np.searchsorted(index.pair_keys, keys)
    found = index.pair_keys[np.minimum(far_pairs, len(index.pair_keys) - 1)] == keys
    numbers, near_pairs, far_pairs = numbers[found], near_pairs[found], far_pairs[found]
    left = np.where(forward[numbers], near_pairs, far_pairs)
    return numbers, left, index.pair_reverses[np.where(forward[numbers], far_pairs, near_pairs)]


def _distinct_paths(index: Index, numbers: Longs, left: Longs, right: Longs) -> Longs:
    """The labels of the paths from left to right pairs, once for each number."""
    places, first, second = _join_labels(index, left, right)
    keys = (numbers[places] * index.labels + first) * index.labels + second
    return np.unique(keys) % index.labels**2


def _join_labels(index: Index, left: Longs, right: Longs) -> tuple[Longs, Ints, Ints]:
    """Each label of a left pair with each of the right pair at the same place."""
    starts, lengths = index.pair_label_starts, np.diff(index.pair_label_starts)
    outer = np.repeat(np.arange(len(left)), lengths[left])
    first = index.pair_labels[concatenated_ranges(starts[left], lengths[left])]
    many = lengths[right[outer]]
    second = index.pair_labels[concatenated_ranges(starts[right[outer]], many)]
    return np.repeat(outer, many), np.repeat(first, many), second


def _find_pairs(index: Index, subjects: Ints, objects: Ints) -> Longs:
    return np.searchsorted(index.pair_keys, pair_key(subjects, objects, index.entities))


def _add_up(parts: Iterator[Longs], labels: int) -> Supports:
    """Count the bodies of all parts; a body's number is that of its first label times `labels`, plus its second."""
    bodies, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for part in parts:
        some, numbers = np.unique(part, return_counts=True)
        bodies, places = np.unique(np.concatenate([bodies, some]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, numbers]), len(bodies)).astype(np.int64)
    return Supports(*np.divmod(bodies, labels), counts)
