"""Nearest vectors by Elasticsearch: `dense_vector` with Lucene's HNSW graph, unquantised.

A text without a known token has a zero vector: such a document gets none in the index and is never found, such a
question finds nothing. By `max_inner_product`, whose score is 1 + x for an inner product x >= 0 and 1 / (1 - x) below,
in single precision; it is turned back into the cosine.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import Server
from services.retriever.ports import UNSIGNED, Batch, Match
from shared.models.ports import Embedder
from shared.retrieval import Dense

FIELD = "vector"
MARGIN = 16
"""More are fetched than asked for, so that equals at the cut come by hash."""
MOST = 10_000
"""`num_candidates` at most."""


class ServedVectors:
    """A `DenseIndex` on a server; approximate."""

    def __init__(self, place: backend.Place, embedder: Embedder, candidates: int) -> None:
        self._place = place
        self._embedder = embedder
        self._candidates = candidates
        self.documents = place.documents
        self.save = place.save

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._embedder.dimension

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question the `k` nearest documents that the graph leads to."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[Match]]:
        """The same for vectors [n, dimension] of length 1, or zero: such a one finds nothing."""
        return backend.together(lambda vector: self._matches(vector, k), vectors.tolist())

    def _matches(self, vector: list[float], k: int) -> list[Match]:
        if not any(vector):
            return []
        fetched = min(k + MARGIN, MOST)
        candidates = min(max(self._candidates, fetched), MOST)
        knn = {"field": FIELD, "query_vector": vector, "k": fetched, "num_candidates": candidates}
        found = self._place.server.search(self._place.index, fetched, knn=knn)
        matches = [Match(hit.document, cosine(hit.score)) for hit in found]
        return sorted(matches, key=lambda match: (-match.score, match.document))[:k]


class ElasticsearchVectors(backend.Served):
    """The `Backend` of dense indexes on a server."""

    kind = "dense"

    def __init__(self, server: Server, embedder: Embedder, dense: Dense) -> None:
        super().__init__(server)
        self._embedder = embedder
        self._dense = dense

    def recipe(self) -> dict[str, Any]:
        """Graph and embedder; where the server is does not matter."""
        dense = self._dense
        graph = {"neighbours": dense.neighbours, "candidates": dense.build, "search": dense.search}
        embedder = {"embedder": self._embedder.signature, "dimension": self._embedder.dimension}
        return {"backend": "elasticsearch hnsw", **graph, **embedder}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedVectors:
        """Embed all documents and stream them to a new index; only their hashes are kept here."""
        graph = {"type": "hnsw", "m": self._dense.neighbours, "ef_construction": self._dense.build}
        field = {
            "type": "dense_vector", "dims": self._embedder.dimension, "index": True,
            "similarity": "max_inner_product", "index_options": graph,
        }  # fmt: skip
        place = self._made(signature, batches, self._fields, settings={}, properties={FIELD: field})
        return ServedVectors(place, self._embedder, self._dense.search)

    def _fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        vectors = self._embedder.embed_documents(texts).tolist()
        return ({FIELD: vector} if any(vector) else {} for vector in vectors)

    def load(self, folder: Path) -> ServedVectors:
        """The index that was saved in `folder`."""
        return ServedVectors(self._placed(folder), self._embedder, self._dense.search)


def cosine(score: float) -> float:
    """The inner product that `max_inner_product` made `score` of."""
    return score - 1 if score >= 1 else 1 - 1 / score
