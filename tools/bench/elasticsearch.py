"""The Elasticsearch back ends against the best raw calls for the same result, on the server ELASTICSEARCH_URL.

Both sides start from the same questions, texts and vectors, and take turns. The raw searches are one `_msearch` over
one bare connection, with packed vectors and the fewest bytes back, sorted by score and hash; they must find the same
documents in the same order. The raw builds make the same fields in the same batches and fill an index of the same
mapping, over bare connections, as bytes that they encode themselves, while the next batch is made.
"""

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from threading import local
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.retriever import elasticsearch as back_ends
from services.retriever.elasticsearch import ElasticsearchServer
from services.retriever.index import PAIRS, Batch
from shared.models.embedding import StaticEmbedder
from shared.settings import MODELS, Dense, Elasticsearch
from tools.bench import Rows, benchmark, in_turn
from tools.bench.retrieval import read_math

BATCH = 1000
"""Documents per batch of a build."""
MARGIN = 2
"""Hits beyond `k` that the raw calls fetch, so that equal scores at the end of the list come by hash."""
KEPT = "filter_path=responses.hits.hits._score,responses.hits.hits.fields,responses.status"
CHUNK = 500
THREADS = (1, 2, 4)
"""Connections of the raw builds; the best number is the one to compare with."""
SIGNATURE, RAW = "1" * 64, "2" * 64
Found = list[list[str]]
"""Documents per question."""
Fields = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]


class RawHit(msgspec.Struct):
    """The fields that the raw calls read of a hit."""

    score: float = msgspec.field(name="_score")
    fields: dict[str, list[Any]]


class Hits(msgspec.Struct, frozen=True):
    """The hits of one search."""

    hits: Sequence[RawHit] = ()


class RawReply(msgspec.Struct):
    """The reply to one search."""

    hits: Hits = Hits()


class Replies(msgspec.Struct):
    """The reply to an `_msearch`."""

    responses: list[RawReply]


DECODER = msgspec.json.Decoder(Replies)
CONNECTION = HTTPConnection(urlsplit(os.environ.get("ELASTICSEARCH_URL", "http://127.0.0.1:9200")).netloc)


@benchmark
def elasticsearch(
    folder: Path, questions: int = 256, k: int = 20, rounds: int = 30, builds: int = 5, documents: int = 0
) -> Rows:
    """Compare the Elasticsearch back ends with the best raw calls for the same result, on ELASTICSEARCH_URL.

    FOLDER has train.jsonl and test-dev.jsonl. `questions` are in one batch, of 256 at most; `rounds` are of searches;
    more `documents` than those of the folder are copies with a number.
    """
    texts, asked = read_math(folder, questions)
    found = multiply([(sha256(text.encode()).hexdigest(), text) for text in dict.fromkeys(texts)], documents)
    embedder = StaticEmbedder(MODELS / "static-embeddings")
    vectors = embedder.embed_queries(asked)

    def batches() -> Iterator[Batch]:
        return (found[at : at + BATCH] for at in range(0, len(found), BATCH))

    def build_raw(raw: RawBuild, back_end: Any) -> None:
        raw.run(batches(), back_end._make_fields)

    def build_ours(back_end: Any) -> None:
        back_end.build(batches(), SIGNATURE)

    with server() as served:
        nearest = back_ends.ElasticsearchVectors(served, embedder, Dense())
        terms = back_ends.ElasticsearchTerms(served, PAIRS, k1=1.2, b=0.75)
        for kind, back_end in (("dense", nearest), ("sparse", terms)):
            ours = f"{served.prefix}-{kind}-{SIGNATURE}"
            back_end.build(batches(), SIGNATURE)  # whose mapping the raw side copies
            sides: dict[str, Callable[[], object]] = {}
            for threads in THREADS:
                raw_build = RawBuild(ours, f"{served.prefix}-{kind}-{RAW}", threads)
                sides[f"raw, {threads} connections"] = partial(build_raw, raw_build, back_end)
            sides[f"{kind} build"] = partial(build_ours, back_end)
            yield from in_turn(sides, builds)
        by_vectors, by_terms = nearest.build(batches()), terms.build(batches())
        name = f"{served.prefix}-{{}}-{'0' * 64}"
        searches: dict[str, tuple[Callable[[], Found], Callable[[], Found]]] = {
            "dense search": (
                lambda: raw_dense(name.format("dense"), vectors, k),
                lambda: hashes(by_vectors.search_vectors(vectors, k)),
            ),
            "sparse search": (
                lambda: raw_sparse(name.format("sparse"), asked, k), lambda: hashes(by_terms.search(asked, k))
            ),
        }  # fmt: skip
        for what, (raw_side, our_side) in searches.items():
            if raw_side() != our_side():
                raise SystemExit(f"{what}: the two sides differ")
            yield from in_turn({"raw calls": raw_side, what: our_side}, rounds)


def multiply(documents: Sequence[tuple[str, str]], wanted: int) -> list[tuple[str, str]]:
    """Return `wanted` documents, 0 for all: first the given ones, then copies that differ in a number."""
    wanted = wanted or len(documents)
    made = list(documents[:wanted])
    while len(made) < wanted:
        _, text = documents[len(made) % len(documents)]
        changed = f"{text} {len(made)}"
        made.append((sha256(changed.encode()).hexdigest(), changed))
    return made


@contextmanager
def server() -> Iterator[ElasticsearchServer]:
    """Yield the server with a separate prefix, and remove its indexes at the end."""
    served = ElasticsearchServer(Elasticsearch(prefix=f"mathrag-bench-{uuid4().hex[:8]}"))
    try:
        yield served
    finally:
        for index in served.indexes():
            served.delete(index)


def hashes(found: Any) -> Found:
    return [[match.document for match in matches] for matches in found]


def raw_dense(index: str, vectors: NDArray[np.float32], k: int) -> Found:
    """Find the nearest documents; equal vectors are sorted by hash."""
    depth = k + MARGIN
    knn = {"field": back_ends.VECTOR_FIELD, "k": depth, "num_candidates": max(Dense().search, depth)}
    packed = (base64.b64encode(vector.byteswap()).decode() for vector in vectors)
    bodies = [{"knn": {**knn, "query_vector": each}, "docvalue_fields": ["hash", back_ends.DIGEST]} for each in packed]
    found = []
    for hits in raw(index, bodies, depth):
        best: dict[int, float] = {}
        ranked = [(-best.setdefault(hit.fields[back_ends.DIGEST][0], hit.score), hit.fields["hash"][0]) for hit in hits]
        found.append([document for _, document in sorted(ranked)[:k]])
    return found


def raw_sparse(index: str, questions: Sequence[str], k: int) -> Found:
    """Find the documents with the highest scores; equal scores are sorted by hash."""
    terms = (" ".join(PAIRS.of(question)) for question in questions)
    bodies = [
        {"query": {"match": {back_ends.TERMS_FIELD: {"query": each}}}, "docvalue_fields": ["hash"]} for each in terms
    ]
    ranked = ([(-hit.score, hit.fields["hash"][0]) for hit in hits] for hits in raw(index, bodies, k + MARGIN))
    return [[document for _, document in sorted(hits)[:k]] for hits in ranked]


def raw(index: str, bodies: Sequence[dict[str, Any]], size: int) -> list[Sequence[RawHit]]:
    """Return the hits of each search of one `_msearch`."""
    shared = {"size": size, "track_total_hits": False, "stored_fields": "_none_"}
    lines = b"".join(b"{}\n" + msgspec.json.encode({**shared, **body}) + b"\n" for body in bodies)
    CONNECTION.request("POST", f"/{index}/_msearch?{KEPT}", lines, {"content-type": "application/x-ndjson"})
    return [reply.hits.hits for reply in DECODER.decode(CONNECTION.getresponse().read()).responses]


class RawBuild:
    """Fills `index`, which has the settings and mapping of `like`."""

    def __init__(self, like: str, index: str, threads: int) -> None:
        self._like = like
        self._index = index
        self._threads = threads
        self._host = urlsplit(Elasticsearch().addresses[0]).netloc
        self._local = local()

    def run(self, batches: Iterator[Batch], fields: Fields) -> None:
        self._call("DELETE", f"/{self._index}?ignore_unavailable=true")
        found = msgspec.json.decode(self._call("GET", f"/{self._like}"))[self._like]
        settings = found["settings"]["index"]
        for name in ("creation_date", "uuid", "version", "provided_name"):
            settings.pop(name)
        copy_settings = msgspec.json.encode({"settings": {"index": settings}, "mappings": found["mappings"]})
        self._call("PUT", f"/{self._index}", copy_settings)
        sent = []
        with ThreadPoolExecutor(self._threads) as threads:
            for batch in batches:
                made = list(zip((name for name, _ in batch), fields([text for _, text in batch]), strict=True))
                sent += [threads.submit(self._send, made[at : at + CHUNK]) for at in range(0, len(made), CHUNK)]
        for each in sent:
            each.result()
        self._call("POST", f"/{self._index}/_refresh")

    def _send(self, chunk: list[tuple[str, Mapping[str, Any]]]) -> None:
        encode = msgspec.json.encode
        lines = b"".join(
            encode({"index": {"_id": name}}) + b"\n" + encode({"hash": name, **each}) + b"\n" for name, each in chunk
        )
        said = self._call("POST", f"/{self._index}/_bulk?filter_path=errors", lines, "application/x-ndjson")
        if said != b'{"errors":false}':
            raise SystemExit(f"the raw side was refused: {said[:300]!r}")

    def _call(self, method: str, path: str, body: bytes = b"", media: str = "application/json") -> bytes:
        if not hasattr(self._local, "connection"):
            self._local.connection = HTTPConnection(self._host)
        connection: HTTPConnection = self._local.connection
        connection.request(method, path, body, {"content-type": media})
        reply = connection.getresponse()
        said = reply.read()
        if reply.status >= 300:
            raise SystemExit(f"{method} {path}: {said[:300]!r}")
        return said
