"""Search vectors on Elasticsearch: a `dense_vector` field with Lucene's HNSW graph of floats, bytes or bits.

The best hits of a graph of bytes or bits are scored again with the floats, so that scores are as exact as without.

A text without a known token has a zero vector. Such a document is stored without a vector and never found; such a
question finds nothing. The similarity is `max_inner_product`, in single precision: its score is 1 + x for an inner
product x >= 0 and 1 / (1 - x) below, from which the cosine is computed back.

Lucene scores several vectors at once and adds in an order that depends on their positions, so equal vectors get scores
that differ in the last digits. Each document therefore has a digest of its vector, and all documents of one digest get
the highest score among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from elasticsearch import helpers
from numpy.typing import NDArray

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import MOST_HITS, Body, ElasticsearchServer
from services.retriever.ports import UNSIGNED, Batch, IndexMatch
from shared.models.embedding import Embedder
from shared.settings import Dense, VectorGraph

FIELD = "vector"
DIGEST = "digest"
MARGIN = 2
"""Extra hits per search, so that nearly all vectors that equal the last one are among them."""
DEEPER = 4
"""Factor by which a search is repeated for more hits when `MARGIN` was not enough."""
OVERSAMPLE = 3.0
"""Hits of a graph of bytes or bits that are scored again with the floats, per hit that is asked for."""
NEAR = 1e-5
"""Upper bound of the difference between the scores of equal vectors."""
EARLY_TERMINATION = "index.dense_vector.hnsw_enable_early_termination"
EARLY_TERMINATION_SINCE = (9, 2)
"""First version with the setting, which is on by default there and ends a search before `num_candidates` are
compared."""
PACKED_DOCUMENTS_SINCE = (9, 3)
PACKED_QUESTIONS_SINCE = (9, 4)
"""First versions that take a vector as base64 of its floats, in a quarter of the bytes."""

Vector = str | list[float]


class ServedVectors:
    """Searches vectors on a server, as `DenseIndex` does in memory; the neighbours are approximate."""

    def __init__(self, place: backend.ServerIndex, embedder: Embedder, candidates: int, *, rescored: bool) -> None:
        self._place = place
        self._embedder = embedder
        self._candidates = candidates
        self._rescored = rescored
        self.documents = place.documents
        self.save = place.save

    @property
    def dimension(self) -> int:
        """Return the length of a vector."""
        return self._embedder.dimension

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return the `k` nearest documents of each question, as far as the graph finds them."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        """Search for vectors [n, dimension] of length 1; a zero vector finds nothing."""
        nonzero = np.flatnonzero(vectors.any(axis=1)).tolist()
        packed = self._place.server.version >= PACKED_QUESTIONS_SINCE
        fetched = max(k, min(k + MARGIN, MOST_HITS))
        found = dict(
            zip(
                nonzero,
                self._fetch([encode_vector(vectors[at], packed=packed) for at in nonzero], k, fetched),
                strict=True,
            )
        )
        return [rank_hits(found.get(at, []), k) for at in range(len(vectors))]

    def _fetch(self, vectors: Sequence[Vector], k: int, fetched: int) -> list[list[Body]]:
        """Fetch the hits of each vector: all that can be among the first `k`, and perhaps more."""
        found = self._place.server.search(
            self._place.index, fetched, [self._make_search(each, fetched) for each in vectors]
        )
        cut = [at for at, hits in enumerate(found) if len(hits) == fetched < MOST_HITS and is_cut(hits, k)]
        if cut:
            deeper = self._fetch([vectors[at] for at in cut], k, min(fetched * DEEPER, MOST_HITS))
            for at, hits in zip(cut, deeper, strict=True):
                found[at] = hits
        return found

    def _make_search(self, vector: Vector, fetched: int) -> Body:
        candidates = min(max(self._candidates, fetched), MOST_HITS)
        knn: dict[str, Any] = {"field": FIELD, "query_vector": vector, "k": fetched, "num_candidates": candidates}
        if self._rescored:
            knn["rescore_vector"] = {"oversample": OVERSAMPLE}
        return {"knn": knn, "docvalue_fields": ["hash", DIGEST]}


class ElasticsearchVectors(backend.ServerBackend):
    """The `Backend` of dense indexes on a server."""

    kind = "dense"

    def __init__(
        self, server: ElasticsearchServer, embedder: Embedder, dense: Dense, vectors: VectorGraph = "hnsw"
    ) -> None:
        super().__init__(server)
        self._embedder = embedder
        self._dense = dense
        self._vectors = vectors

    def recipe(self) -> dict[str, Any]:
        """Return the graph's parameters, the embedder and the rule for ties; the server's address does not matter.

        Indexes of release 0.1 have neither `ties` nor `early_termination`: they lack the digests, and their searches
        may end early.
        """
        dense = self._dense
        graph = {"neighbours": dense.neighbours, "candidates": dense.build, "search": dense.search}
        embedder = {"embedder": self._embedder.signature, "dimension": self._embedder.dimension}
        exact = {"ties": "by digest", "early_termination": "off"}
        rescored = {"oversample": OVERSAMPLE} if self._is_quantised else {}
        return {"backend": f"elasticsearch {self._vectors}", **graph, **exact, **rescored, **embedder}

    @property
    def _is_quantised(self) -> bool:
        return self._vectors != "hnsw"

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedVectors:
        """Embed all documents and stream them to a new index; only their hashes stay in memory."""
        graph = {"type": self._vectors, "m": self._dense.neighbours, "ef_construction": self._dense.build}
        field = {
            "type": "dense_vector", "dims": self._embedder.dimension, "index": True,
            "similarity": "max_inner_product", "index_options": graph,
        }  # fmt: skip
        digest = {"type": "long", "index": False}
        knows = self._server.version >= EARLY_TERMINATION_SINCE
        place = self._build_index(
            signature, batches, self._make_fields,
            settings={EARLY_TERMINATION: False} if knows else {}, properties={FIELD: field, DIGEST: digest},
        )  # fmt: skip
        return self._serve(place)

    def _make_fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        packed = self._server.version >= PACKED_DOCUMENTS_SINCE
        for vector in self._embedder.embed_documents(texts):
            yield {FIELD: encode_vector(vector, packed=packed), DIGEST: digest_vector(vector)} if vector.any() else {}

    def load(self, folder: Path) -> ServedVectors:
        """Load the index to which `folder` refers."""
        return self._serve(self._open_index(folder))

    def _serve(self, place: backend.ServerIndex) -> ServedVectors:
        return ServedVectors(place, self._embedder, self._dense.search, rescored=self._is_quantised)


def encode_vector(vector: NDArray[np.float32], *, packed: bool) -> Vector:
    """Encode a vector for the server: base64 of its floats, or a list of numbers for versions before base64."""
    return helpers.pack_dense_vector(vector) if packed else vector.tolist()


def digest_vector(vector: NDArray[np.float32]) -> int:
    """Return a signed 64-bit digest, equal for equal vectors."""
    positive = vector + np.float32(0)  # -0.0 becomes 0.0, which it equals
    return int.from_bytes(blake2b(positive.tobytes(), digest_size=8).digest(), signed=True)


def is_cut(hits: Sequence[Body], k: int) -> bool:
    """Tell whether a vector that equals one of the first `k` may follow after the last of `hits`."""
    return bool(hits[k - 1]["_score"] - hits[-1]["_score"] < NEAR)


def rank_hits(hits: Sequence[Body], k: int) -> list[IndexMatch]:
    """Return the first `k` hits by descending cosine, then hash; equal vectors get equal cosines."""
    highest: dict[int, float] = {}
    ranked = sorted(
        (-highest.setdefault(hit["fields"][DIGEST][0], hit["_score"]), hit["fields"]["hash"][0]) for hit in hits
    )
    return [IndexMatch(document, to_cosine(-score)) for score, document in ranked[:k]]


def to_cosine(score: float) -> float:
    """Compute the inner product from the score that `max_inner_product` made of it."""
    return score - 1 if score >= 1 else 1 - 1 / score
