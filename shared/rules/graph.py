"""Knowledge graphs as arrays."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Index = TypeVar("Index")


class Graph(NamedTuple):
    """Distinct facts in the order of their file; entities and relations are numbered by first appearance."""

    triples: NDArray[np.int32]
    """(facts, 3): subject, relation, object."""
    times: NDArray[np.int64] | None
    """(facts,): the step of each fact, and None for a static graph. Steps are days or the numbers of the file."""
    entities: Sequence[str]
    """By number."""
    relations: Sequence[str]
    """By number."""


def keep_latest(build: Callable[[Graph], Index]) -> Callable[[Graph], Index]:
    """Make a function that builds an index of a graph, and keeps that of the latest graph: miners ask for one relation
    after the other.
    """
    kept: list[tuple[Graph, Index]] = []

    def get(graph: Graph) -> Index:
        if not kept or kept[0][0].triples is not graph.triples or kept[0][0].times is not graph.times:
            kept.clear()  # before the next one takes memory
            kept.append((graph, build(graph)))
        return kept[0][1]

    return get


def slice_by_weight(weights: NDArray[np.integer], most: int) -> Iterator[slice]:
    """Cut positions into successive slices that weigh at most `most` together, or hold a single position."""
    ends = np.cumsum(weights, dtype=np.int64)
    start, done = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])


def concatenate_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of `range(start, start + length)` of each start, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
