"""Sizes of bodies: how many distinct pairs of entities a body joins, by products of sparse matrices."""

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from shared.rules.amie.index import Index, Ints
from shared.rules.amie.slices import slices

MOST_PATHS = 1 << 22
"""Paths that one product of matrices follows, unless a single row has more: 20 MiB."""
KEPT_POINTERS = 1 << 23
"""Row pointers of matrices that are kept for the next product: 32 MiB."""
KEPT_SIZES = 1 << 17
"""Sizes of paths that are kept for the next head: some 30 MiB."""


class Bodies:
    """Counts bodies of a graph."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._matrix = lru_cache(max(2, KEPT_POINTERS // (index.entities + 1)))(self._make_matrix)
        self._path_size = lru_cache(KEPT_SIZES)(self._count_path)

    def parallel_edges(self, first: int, second: int) -> tuple[Ints, Ints]:
        """Sources and targets that edges of both labels join."""
        fewer, more = sorted((first, second), key=lambda label: len(self.index.edges(label)[0]))
        keys, others = self.index.keys(fewer), self.index.keys(more)
        met = others[np.minimum(np.searchsorted(others, keys), len(others) - 1)] == keys
        sources, targets = self.index.edges(fewer)
        return sources[met], targets[met]

    def rows(self, label: int, known: NDArray[np.bool_]) -> Any:
        """The edges from known sources: a sparse matrix of entities, with a row for each source that has an edge."""
        sources, targets = self.index.edges(label)
        kept = known[sources]
        starts = np.flatnonzero(np.diff(sources[kept], prepend=-1))
        pointers = np.append(starts, np.count_nonzero(kept))
        return _sparse(pointers, targets[kept], (len(starts), self.index.entities))

    def count_ends(self, rows: Any, label: int, most: int | None) -> int:
        """Pairs of a row and a target that an edge of `label` leads to from one of the row's entities.

        Stops at more than `most`: the number is too low then, but above `most`.
        """
        step = self._matrix(label)
        fans = np.diff(step.indptr)[rows.indices]
        if most is not None and np.maximum.reduceat(fans, rows.indptr[:-1]).sum() > most:
            return most + 1
        total = 0
        for part in slices(np.add.reduceat(fans, rows.indptr[:-1], dtype=np.int64), MOST_PATHS):
            total += (rows[part] @ step).nnz
            if most is not None and total > most:
                break
        return total

    def path_size(self, first: int, second: int) -> int:
        """Pairs that a path of these labels joins: as many as the inverse path joins."""
        return self._path_size(*min((first, second), (self.index.inverse(second), self.index.inverse(first))))

    def _count_path(self, first: int, second: int) -> int:
        everything = np.ones(self.index.entities, dtype=bool)
        return self.count_ends(self.rows(first, everything), second, None)

    def _make_matrix(self, label: int) -> Any:
        """All edges of a label, sources by targets."""
        sources, targets = self.index.edges(label)
        pointers = np.searchsorted(sources, np.arange(self.index.entities + 1, dtype=np.int32))
        return _sparse(pointers, targets, (self.index.entities, self.index.entities))


def _sparse(pointers: NDArray[np.int64], targets: Ints, shape: tuple[int, int]) -> Any:
    return sp.csr_array((np.ones(len(targets), dtype=bool), targets, pointers.astype(np.int32)), shape=shape)
