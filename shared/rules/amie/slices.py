"""Work in slices, so that an intermediate join takes bounded memory."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shared.rules.amie.index import Longs


def slices(weights: NDArray[np.integer], most: int) -> Iterator[slice]:
    """Cut positions into successive slices that weigh at most `most` together, or hold a single position."""
    ends = np.cumsum(weights, dtype=np.int64)
    start, done = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])


def concatenated_ranges(starts: Longs, lengths: Longs) -> Longs:
    """The numbers of `range(start, start + length)` of each start, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
