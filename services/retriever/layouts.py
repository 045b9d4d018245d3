"""Layouts of FAISS indexes: flat, as a graph (HNSW), or in lists around centroids (IVF).

A layout only proposes documents, whose cosines are then computed in double precision, so that scores do not depend on
it. A graph or a list may miss a near document, but deterministically: neither the build nor the other questions of a
batch change what is found.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

LEAST_PER_LIST = 39
"""Lower bound of documents per centroid, below which FAISS warns and finds less."""
SEED = 0
"""Seed of the k-means that finds the centroids."""

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]
Near = Callable[[Vectors, int], Positions]
"""Questions [n, dimension] and k to positions [n, k] of the nearest vectors; -1 where there are no more."""


class VectorLayout(Protocol):
    """Builds and searches an index of FAISS."""

    def recipe(self) -> dict[str, Any]:
        """Return everything that determines which documents are proposed."""

    def lay(self, vectors: Vectors) -> Any:
        """Build an index of `vectors` [n, dimension], deterministically."""

    def finder(self, index: Any) -> Near:
        """Return the function that searches an index of this layout. Safe to call from several threads."""


class Flat:
    """Searches all vectors exactly."""

    def recipe(self) -> dict[str, Any]:
        return {"backend": "faiss IndexFlatIP"}

    def lay(self, vectors: Vectors) -> Any:
        """Build an index of `vectors`: 4 bytes a number."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    def finder(self, index: Any) -> Near:
        """Return the search function. Ask for a few more than `k`: scores differ in the last bit with the batch's
        size."""
        return partial(_search, index)


class Hnsw:
    """A navigable graph (Malkov and Yashunin 2016): a search compares about log n documents."""

    def __init__(self, neighbours: int, build: int, search: int) -> None:
        self._neighbours = neighbours
        self._build = build
        self._search = search

    def recipe(self) -> dict[str, Any]:
        """Return M, efConstruction and efSearch, and FAISS's version, since another one may link otherwise."""
        parameters = {"neighbours": self._neighbours, "candidates": self._build, "search": self._search}
        return {"backend": f"faiss {faiss.__version__} IndexHNSWFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """Build the graph with one thread: several would link in an order that differs from run to run."""
        index = faiss.IndexHNSWFlat(vectors.shape[1], self._neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self._build
        index.hnsw.efSearch = self._search
        with _limit_to_one_thread():
            index.add(vectors)
        return index

    def finder(self, index: Any) -> Near:
        """Return a function that takes the best of `search` candidates, or of k if that is more."""
        return partial(_search, index)


class Ivf:
    """Lists around centroids: those of the nearest ones are searched."""

    def __init__(self, lists: int, probes: int) -> None:
        self._lists = lists
        self._probes = probes

    def recipe(self) -> dict[str, Any]:
        """Return the number of lists and of probes, and FAISS's version, since another one may find other centroids."""
        parameters = {"lists": self._lists, "probes": self._probes, "seed": SEED}
        return {"backend": f"faiss {faiss.__version__} IndexIVFFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """Build the lists; a small corpus gets fewer than were asked for."""
        dimension = vectors.shape[1]
        lists = self.lists(len(vectors))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = SEED
        index.cp.min_points_per_centroid = 1  # one list may hold less, without a warning
        index.nprobe = min(self._probes, lists)
        with _limit_to_one_thread():
            index.train(vectors)
            index.add(vectors)
        index.make_direct_map()  # so that a vector is found by its position
        return index

    def lists(self, documents: int) -> int:
        """Return the number of lists; by default four times the square root (FAISS's guidelines: 4 to 16 times)."""
        return max(1, min(self._lists or 4 * math.isqrt(documents), documents // LEAST_PER_LIST))

    def finder(self, index: Any) -> Near:
        """Return a function that compares the centroids itself, one question at a time: FAISS's last bit depends on the
        batch."""
        return partial(_search_lists, index, index.quantizer.reconstruct_n(0, index.nlist).astype(np.float64))


def _search_lists(index: Any, centroids: NDArray[np.float64], questions: Vectors, k: int) -> Positions:
    scores = np.stack([(centroids * question).sum(axis=1) for question in questions])
    lists = np.argsort(-scores, axis=1, kind="stable")[:, : index.nprobe]
    alike = np.take_along_axis(scores, lists, axis=1)
    found: Positions = index.search_preassigned(questions, k, lists, alike)[1]
    return found


def _search(index: Any, questions: Vectors, k: int) -> Positions:
    found: Positions = index.search(questions, k)[1]
    return found


@contextmanager
def _limit_to_one_thread() -> Iterator[None]:
    """Limit OpenMP to one thread inside the block; its setting is per calling thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
