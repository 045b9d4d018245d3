"""Nearest vectors by Elasticsearch: `dense_vector` with Lucene's HNSW graph, unquantised.

A text without a known token has a zero vector: such a document gets none in the index and is never found, such a
question finds nothing. By `max_inner_product`, whose score is 1 + x for an inner product x >= 0 and 1 / (1 - x) below,
in single precision; it is turned back into the cosine.

Lucene scores several vectors at once, and adds in an order that depends on where each lies: equal vectors get scores
that differ in the last digits. So each document bears a digest of its vector, and all with the same one get the same
score, the highest among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from elasticsearch import helpers
from numpy.typing import NDArray

from services.retriever.elasticsearch import backend
from services.retriever.elasticsearch.server import MOST_HITS, Body, Server
from services.retriever.ports import UNSIGNED, Batch, Match
from shared.models.ports import Embedder
from shared.retrieval_settings import Dense

FIELD = "vector"
DIGEST = "digest"
MARGIN = 2
"""More hits than asked for, so that nearly all equal vectors at the end of the list are among them."""
DEEPER = 4
"""So many times more hits are fetched where they were not."""
NEAR = 1e-5
"""Scores of equal vectors differ by less."""
EARLY_TERMINATION = "index.dense_vector.hnsw_enable_early_termination"
EARLY_TERMINATION_SINCE = (9, 2)
"""The setting's first version. It is on by default, and ends a search before `num_candidates` were looked at."""
PACKED_DOCUMENTS_SINCE = (9, 3)
PACKED_QUESTIONS_SINCE = (9, 4)
"""The first versions that take a vector as base64 of its floats, in a quarter of the bytes."""

Vector = str | list[float]


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
        asked = np.flatnonzero(vectors.any(axis=1)).tolist()
        packed = self._place.server.version >= PACKED_QUESTIONS_SINCE
        fetched = max(k, min(k + MARGIN, MOST_HITS))
        found = dict(
            zip(asked, self._fetch([encoded(vectors[at], packed=packed) for at in asked], k, fetched), strict=True)
        )
        return [rank(found.get(at, []), k) for at in range(len(vectors))]

    def _fetch(self, vectors: Sequence[Vector], k: int, fetched: int) -> list[list[Body]]:
        """The hits of each vector: all that can be among the first `k`, and perhaps more."""
        found = self._place.server.search(
            self._place.index, fetched, [self._nearest(each, fetched) for each in vectors]
        )
        cut = [at for at, hits in enumerate(found) if len(hits) == fetched < MOST_HITS and is_cut(hits, k)]
        if cut:
            deeper = self._fetch([vectors[at] for at in cut], k, min(fetched * DEEPER, MOST_HITS))
            for at, hits in zip(cut, deeper, strict=True):
                found[at] = hits
        return found

    def _nearest(self, vector: Vector, fetched: int) -> Body:
        candidates = min(max(self._candidates, fetched), MOST_HITS)
        knn = {"field": FIELD, "query_vector": vector, "k": fetched, "num_candidates": candidates}
        return {"knn": knn, "docvalue_fields": ["hash", DIGEST]}


class ElasticsearchVectors(backend.Served):
    """The `Backend` of dense indexes on a server."""

    kind = "dense"

    def __init__(self, server: Server, embedder: Embedder, dense: Dense) -> None:
        super().__init__(server)
        self._embedder = embedder
        self._dense = dense

    def recipe(self) -> dict[str, Any]:
        """Graph, embedder and rule for ties; where the server is does not matter, nor how vectors are sent.

        Indexes of release 0.1 have no `ties` and no `early_termination`: they lack the digests, and their searches may
        end early.
        """
        dense = self._dense
        graph = {"neighbours": dense.neighbours, "candidates": dense.build, "search": dense.search}
        embedder = {"embedder": self._embedder.signature, "dimension": self._embedder.dimension}
        exact = {"ties": "by digest", "early_termination": "off"}
        return {"backend": "elasticsearch hnsw", **graph, **exact, **embedder}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedVectors:
        """Embed all documents and stream them to a new index; only their hashes are kept here."""
        graph = {"type": "hnsw", "m": self._dense.neighbours, "ef_construction": self._dense.build}
        field = {
            "type": "dense_vector", "dims": self._embedder.dimension, "index": True,
            "similarity": "max_inner_product", "index_options": graph,
        }  # fmt: skip
        digest = {"type": "long", "index": False}
        knows = self._server.version >= EARLY_TERMINATION_SINCE
        place = self._made(
            signature, batches, self._fields,
            settings={EARLY_TERMINATION: False} if knows else {}, properties={FIELD: field, DIGEST: digest},
        )  # fmt: skip
        return ServedVectors(place, self._embedder, self._dense.search)

    def _fields(self, texts: Sequence[str]) -> Iterator[backend.Fields]:
        packed = self._server.version >= PACKED_DOCUMENTS_SINCE
        for vector in self._embedder.embed_documents(texts):
            yield {FIELD: encoded(vector, packed=packed), DIGEST: digest(vector)} if vector.any() else {}

    def load(self, folder: Path) -> ServedVectors:
        """The index that was saved in `folder`."""
        return ServedVectors(self._placed(folder), self._embedder, self._dense.search)


def encoded(vector: NDArray[np.float32], *, packed: bool) -> Vector:
    """A vector as the server takes it: base64 of its floats, or a list of numbers."""
    return helpers.pack_dense_vector(vector) if packed else vector.tolist()


def digest(vector: NDArray[np.float32]) -> int:
    """64 bits, signed, that are equal for equal vectors."""
    positive = vector + np.float32(0)  # -0.0 becomes 0.0, which it equals
    return int.from_bytes(blake2b(positive.tobytes(), digest_size=8).digest(), signed=True)


def is_cut(hits: Sequence[Body], k: int) -> bool:
    """Whether a vector that equals one of the first `k` may follow after the last of `hits`."""
    return bool(hits[k - 1]["_score"] - hits[-1]["_score"] < NEAR)


def rank(hits: Sequence[Body], k: int) -> list[Match]:
    """The first `k` by descending cosine, then hash, where equal vectors have equal cosines."""
    highest: dict[int, float] = {}
    ranked = sorted(
        (-highest.setdefault(hit["fields"][DIGEST][0], hit["_score"]), hit["fields"]["hash"][0]) for hit in hits
    )
    return [Match(document, cosine(-score)) for score, document in ranked[:k]]


def cosine(score: float) -> float:
    """The inner product that `max_inner_product` made `score` of."""
    return score - 1 if score >= 1 else 1 - 1 / score
