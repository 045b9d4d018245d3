"""Exact nearest neighbours by inner product (FAISS IndexFlatIP) over an embedder."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from services.retriever import hashes
from services.retriever.ports import Batch, Match
from shared.models.ports import Embedder

FILE = "vectors.faiss"
MARGIN = 16
"""FAISS's scores differ in the last bit with the size of the batch: so many more are fetched, then scored again."""


class FaissIndex:
    """A `DenseIndex`; scores are cosines, computed in double precision so that every batch gives the same ones."""

    def __init__(self, index: Any, documents: list[str], embedder: Embedder) -> None:
        self._index = index
        self._embedder = embedder
        self.documents = documents
        self._vectors: NDArray[np.float32] = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        self._vectors = self._vectors.reshape(index.ntotal, index.d)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question the `k` nearest documents, or all if there are fewer."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[Match]]:
        """The same for vectors [n, dimension] of length 1."""
        if not len(vectors):
            return []
        _, near = self._index.search(vectors, min(k + MARGIN, len(self.documents)))
        return [self._matches(vector, found, k) for vector, found in zip(vectors, near, strict=True)]

    def _matches(self, vector: NDArray[np.float32], near: NDArray[np.int64], k: int) -> list[Match]:
        found = np.sort(near)
        scores = (self._vectors[found].astype(np.float64) * vector).sum(axis=1)
        best = np.argsort(-scores, kind="stable")[:k]
        return [Match(self.documents[found[at]], float(scores[at])) for at in best]

    def save(self, folder: Path) -> None:
        """Write vectors and document hashes."""
        # FAISS's own writer does not notice a disk that is full only when the file is closed.
        (folder / FILE).write_bytes(faiss.serialize_index(self._index).data)
        hashes.write(folder, self.documents)


class Faiss:
    """The `Backend` of dense indexes."""

    kind = "dense"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def recipe(self) -> dict[str, Any]:
        """Library and embedder."""
        return {
            "backend": "faiss IndexFlatIP",
            "embedder": self._embedder.signature,
            "dimension": self._embedder.dimension,
        }

    def build(self, batches: Iterable[Batch]) -> FaissIndex:
        """Embed and index all documents; vectors are kept in memory, 4 bytes a number."""
        documents: list[str] = []
        parts: list[NDArray[np.float32]] = []
        for batch in batches:
            documents += [document for document, _ in batch]
            parts.append(self._embedder.embed_documents([text for _, text in batch]))
        order = hashes.ascending(documents)
        index = faiss.IndexFlatIP(self._embedder.dimension)
        index.add(np.concatenate(parts)[order])
        return FaissIndex(index, [documents[at] for at in order], self._embedder)

    def load(self, folder: Path) -> FaissIndex:
        """The index that was saved in `folder`."""
        return FaissIndex(faiss.read_index(str(folder / FILE)), hashes.read(folder), self._embedder)
