"""Search vectors in this process, by inner product (FAISS)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from services.retriever import hashes
from services.retriever.layouts import Flat, VectorLayout
from services.retriever.ports import UNSIGNED, Batch, FolderBackend, IndexMatch
from shared.models.embedding import Embedder

FILE = "vectors.faiss"
MARGIN = 16
"""Extra candidates per search, which are scored again: FAISS's scores differ in the last bit with the batch's size."""
LOOK = 10_000
"""Vectors that are compared in one step."""


class FaissIndex:
    """A `DenseIndex` in memory; scores are cosines in double precision, so that every batch gives the same ones."""

    def __init__(self, index: Any, documents: list[str], embedder: Embedder, layout: VectorLayout) -> None:
        self._index = index
        self._embedder = embedder
        self._near = layout.finder(index)
        self._zero = _find_zero(index)
        self.documents = documents

    @property
    def dimension(self) -> int:
        """Return the length of a vector."""
        return int(self._index.d)

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return the `k` nearest documents of each question, or as many as the layout finds."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        """Search for vectors [n, dimension] of length 1; a zero vector finds nothing and is never found."""
        if not vectors.any():
            return [[] for _ in vectors]
        near = self._near(vectors, min(k + MARGIN + len(self._zero), len(self.documents)))
        return [self._find_matches(vector, found, k) for vector, found in zip(vectors, near, strict=True)]

    def _find_matches(self, vector: NDArray[np.float32], near: NDArray[np.int64], k: int) -> list[IndexMatch]:
        if not vector.any():
            return []
        found = np.setdiff1d(near[near >= 0], self._zero)
        scores = (self._index.reconstruct_batch(found).astype(np.float64) * vector).sum(axis=1)
        best = np.argsort(-scores, kind="stable")[:k]
        return [IndexMatch(self.documents[found[at]], float(scores[at])) for at in best]

    def save(self, folder: Path) -> None:
        """Write the vectors and the document hashes."""
        # FAISS's own writer does not notice a disk that is full only when the file is closed.
        (folder / FILE).write_bytes(faiss.serialize_index(self._index).data)
        hashes.write(folder, self.documents)


def _find_zero(index: Any) -> NDArray[np.int64]:
    """Find the positions of documents with a zero vector, whose cosine with every question would be 0."""
    starts = range(0, index.ntotal, LOOK)
    blocks = [index.reconstruct_n(start, min(LOOK, index.ntotal - start)) for start in starts]
    return np.flatnonzero(~np.concatenate([block.any(axis=1) for block in blocks]))


class Faiss(FolderBackend):
    """The `Backend` of dense indexes in this process."""

    kind = "dense"

    def __init__(self, embedder: Embedder, layout: VectorLayout | None = None) -> None:
        self._embedder = embedder
        self._layout = layout or Flat()

    def recipe(self) -> dict[str, Any]:
        """Return the layout, its parameters and the embedder."""
        embedder = {"embedder": self._embedder.signature, "dimension": self._embedder.dimension}
        return {**self._layout.recipe(), **embedder}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> FaissIndex:  # noqa: ARG002 - files bear it
        """Embed and index all documents; the vectors stay in memory, 4 bytes a number."""
        documents: list[str] = []
        parts: list[NDArray[np.float32]] = []
        for batch in batches:
            documents += [document for document, _ in batch]
            parts.append(self._embedder.embed_documents([text for _, text in batch]))
        order = hashes.sort_positions(documents)
        index = self._layout.lay(np.concatenate(parts)[order])
        return FaissIndex(index, [documents[at] for at in order], self._embedder, self._layout)

    def load(self, folder: Path) -> FaissIndex:
        """Load the index that was saved in `folder`."""
        index = faiss.read_index(str(folder / FILE))
        return FaissIndex(index, hashes.read(folder), self._embedder, self._layout)
