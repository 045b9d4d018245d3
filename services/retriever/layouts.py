"""How FAISS lays vectors out: flat, as a graph (HNSW), or in lists around centroids (IVF).

Every layout only proposes documents; their scores are taken again in double precision, so that they are the same
cosines whatever the layout. A graph or a list may miss a near document, but always the same one: building is
deterministic, and what a question is given does not depend on the questions beside it.
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
"""Documents that a centroid is worth; FAISS warns below it, and finds less."""
SEED = 0
"""Of the k-means that finds the centroids."""

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]
Near = Callable[[Vectors, int], Positions]
"""Questions [n, dimension] and k to positions [n, k] of the nearest vectors; -1 where there are no more."""


class Layout(Protocol):
    """Makes and searches FAISS's index."""

    def recipe(self) -> dict[str, Any]:
        """Everything that determines which documents are proposed."""

    def lay(self, vectors: Vectors) -> Any:
        """An index of `vectors` [n, dimension]; the same ones give the same bytes."""

    def finder(self, index: Any) -> Near:
        """What searches an index that was laid like this. Safe to call from several threads."""


class Flat:
    """All of them: exact."""

    def recipe(self) -> dict[str, Any]:
        """It has no parameters."""
        return {"backend": "faiss IndexFlatIP"}

    def lay(self, vectors: Vectors) -> Any:
        """4 bytes a number."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    def finder(self, index: Any) -> Near:
        """FAISS's scores differ in the last bit with the number of questions, so k should have some to spare."""
        return partial(_searched, index)


class Hnsw:
    """A navigable graph (Malkov and Yashunin 2016): about log n documents are looked at."""

    def __init__(self, neighbours: int, build: int, search: int) -> None:
        self._neighbours = neighbours
        self._build = build
        self._search = search

    def recipe(self) -> dict[str, Any]:
        """M, efConstruction and efSearch; another version may link otherwise."""
        parameters = {"neighbours": self._neighbours, "candidates": self._build, "search": self._search}
        return {"backend": f"faiss {faiss.__version__} IndexHNSWFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """By one thread: several would link in the order in which they happen to come."""
        index = faiss.IndexHNSWFlat(vectors.shape[1], self._neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self._build
        index.hnsw.efSearch = self._search
        with _one_thread():
            index.add(vectors)
        return index

    def finder(self, index: Any) -> Near:
        """It takes the best of `search` candidates, or of k if that is more."""
        return partial(_searched, index)


class Ivf:
    """Lists around centroids: those of the nearest ones are searched."""

    def __init__(self, lists: int, probes: int) -> None:
        self._lists = lists
        self._probes = probes

    def recipe(self) -> dict[str, Any]:
        """Lists as they were asked for, and how many are searched; another version may find other centroids."""
        parameters = {"lists": self._lists, "probes": self._probes, "seed": SEED}
        return {"backend": f"faiss {faiss.__version__} IndexIVFFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """Fewer lists than asked for where documents are few: one for a handful of them."""
        dimension = vectors.shape[1]
        lists = self.lists(len(vectors))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = SEED
        index.cp.min_points_per_centroid = 1  # one list may hold less, without a warning
        index.nprobe = min(self._probes, lists)
        with _one_thread():
            index.train(vectors)
            index.add(vectors)
        index.make_direct_map()  # so that a vector is found by its position
        return index

    def lists(self, documents: int) -> int:
        """How many; by themselves four times the square root (FAISS's guidelines: 4 to 16 times)."""
        return max(1, min(self._lists or 4 * math.isqrt(documents), documents // LEAST_PER_LIST))

    def finder(self, index: Any) -> Near:
        """It compares the centroids itself, a question at a time: FAISS's last bit depends on how many there are."""
        return partial(_probing, index, index.quantizer.reconstruct_n(0, index.nlist).astype(np.float64))


def _probing(index: Any, centroids: NDArray[np.float64], questions: Vectors, k: int) -> Positions:
    scores = np.stack([(centroids * question).sum(axis=1) for question in questions])
    lists = np.argsort(-scores, axis=1, kind="stable")[:, : index.nprobe]
    alike = np.take_along_axis(scores, lists, axis=1)
    found: Positions = index.search_preassigned(questions, k, lists, alike)[1]
    return found


def _searched(index: Any, questions: Vectors, k: int) -> Positions:
    """As FAISS finds them."""
    found: Positions = index.search(questions, k)[1]
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """OpenMP's setting is one for each thread that calls it."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
