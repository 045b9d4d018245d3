"""Compare the Elasticsearch back ends with the best raw calls for the same result, on the server ELASTICSEARCH_URL.

    ELASTICSEARCH_URL=http://127.0.0.1:9200 .venv/bin/python -m bench.elasticsearch ../shared/data/math

The raw calls are one `_msearch` over one bare connection, with packed vectors and the fewest bytes back, sorted by
score and hash. Both sides start from the same questions and vectors, search the same index, take turns, and must find
the same documents in the same order.
"""

import argparse
import base64
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.elasticsearch_builds import compare_builds
from services.retriever import elasticsearch
from services.retriever.builds import make_indexed_text
from services.retriever.elasticsearch import ElasticsearchServer
from services.retriever.index import PAIRS, Batch
from shared.ingest.datasets import read_corpus_line, read_dataset_line
from shared.models.embedding import StaticEmbedder
from shared.settings import Dense, Elasticsearch, Settings

BATCH = 1000
"""Documents per batch of a build."""
MARGIN = 2
"""Hits beyond `k` that the raw calls fetch, so that equal scores at the end of the list come by hash."""
KEPT = "filter_path=responses.hits.hits._score,responses.hits.hits.fields,responses.status"
Found = list[list[str]]
"""Documents per question."""


class Side(NamedTuple):
    """One way to search, and the seconds of each run."""

    run: Callable[[], Found]
    seconds: list[float]


class Hit(msgspec.Struct):
    """The fields that the raw calls read of a hit."""

    score: float = msgspec.field(name="_score")
    fields: dict[str, list[Any]]


class Hits(msgspec.Struct, frozen=True):
    """The hits of one search."""

    hits: Sequence[Hit] = ()


class Reply(msgspec.Struct):
    """The reply to one search."""

    hits: Hits = Hits()


class Replies(msgspec.Struct):
    """The reply to an `_msearch`."""

    responses: list[Reply]


DECODER = msgspec.json.Decoder(Replies)
CONNECTION = HTTPConnection(urlsplit(os.environ.get("ELASTICSEARCH_URL", "http://127.0.0.1:9200")).netloc)


def main() -> None:
    """Build both indexes under a prefix of their own, compare the searches, remove the indexes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--questions", type=int, default=256, help="in one batch; the retriever takes 256 at most")
    parser.add_argument("--k", type=int, default=20, help="documents a question")
    parser.add_argument("--rounds", type=int, default=30, help="of searches")
    parser.add_argument("--builds", type=int, default=5, help="rounds of builds")
    parser.add_argument(
        "--documents", type=int, help="so many, from copies with a number [default: those of the folder]"
    )
    options = parser.parse_args()
    documents = read_documents((options.folder / "train.jsonl").read_bytes().splitlines())
    documents = multiply(documents, options.documents or len(documents))
    lines = (options.folder / "test-dev.jsonl").read_bytes().splitlines()[: options.questions]
    questions = [read_dataset_line(line, "", 0).question for line in lines]
    with server() as served:
        compare_builds(served, lambda: batches(documents), options.builds)
        for name, sides in searches(served, documents, questions, options.k).items():
            compare(f"{name} search", sides, options.rounds)


def read_documents(lines: Sequence[bytes]) -> list[tuple[str, str]]:
    """Read (hash, text) of each distinct document."""
    read = [read_corpus_line(line, "", 0).document for line in lines]
    texts = dict.fromkeys(make_indexed_text(document.problem, document.text) for document in read)
    return [(sha256(text.encode()).hexdigest(), text) for text in texts]


def multiply(documents: Sequence[tuple[str, str]], wanted: int) -> list[tuple[str, str]]:
    """Return `wanted` documents, first the given ones, then copies that differ in a number."""
    made = list(documents[:wanted])
    while len(made) < wanted:
        _, text = documents[len(made) % len(documents)]
        changed = f"{text} {len(made)}"
        made.append((sha256(changed.encode()).hexdigest(), changed))
    return made


def batches(documents: Sequence[tuple[str, str]]) -> Iterator[Batch]:
    """Yield documents in batches of `BATCH`."""
    return (documents[at : at + BATCH] for at in range(0, len(documents), BATCH))


@contextmanager
def server() -> Iterator[ElasticsearchServer]:
    """Yield the server with a prefix of its own, and remove its indexes at the end."""
    served = ElasticsearchServer(Elasticsearch(prefix=f"mathrag-bench-{uuid4().hex[:8]}"))
    try:
        yield served
    finally:
        for index in served.indexes():
            served.delete(index)


def searches(
    served: ElasticsearchServer, documents: Sequence[tuple[str, str]], questions: Sequence[str], k: int
) -> dict[str, tuple[Side, Side]]:
    """Build both indexes; return the project's side and the raw side of each."""
    embedder = StaticEmbedder(Settings().retrieval.embeddings.path)
    vectors = embedder.embed_queries(questions)
    nearest = elasticsearch.ElasticsearchVectors(served, embedder, Dense()).build(batches(documents))
    terms = elasticsearch.ElasticsearchTerms(served, PAIRS, k1=1.2, b=0.75).build(batches(documents))
    name = f"{served.prefix}-{{}}-{'0' * 64}"
    return {
        "dense": (
            Side(lambda: hashes(nearest.search_vectors(vectors, k)), []),
            Side(lambda: raw_dense(name.format("dense"), vectors, k), []),
        ),
        "sparse": (
            Side(lambda: hashes(terms.search(questions, k)), []),
            Side(lambda: raw_sparse(name.format("sparse"), questions, k), []),
        ),
    }


def hashes(found: Any) -> Found:
    """List the documents of each list of matches."""
    return [[match.document for match in matches] for matches in found]


def compare(name: str, sides: tuple[Side, Side], rounds: int) -> None:
    """Run both in turn, and print the ratio of the medians and of the quickest.

    Raises:
        SystemExit: they find different documents, or in another order.
    """
    if sides[0].run() != sides[1].run():
        raise SystemExit(f"{name}: the two sides differ")
    for number in range(2 * rounds):
        side = sides[number % 2]
        began = time.perf_counter()
        side.run()
        side.seconds.append(time.perf_counter() - began)
    ours, raw = (side.seconds for side in sides)
    print(
        f"{name}: {median(ours) * 1000:.0f} ms, raw {median(raw) * 1000:.0f} ms, ratio of the medians"
        f" {median(ours) / median(raw):.2f}, of the quickest {min(ours) / min(raw):.2f}, n = {rounds}",
        flush=True,
    )


def raw_dense(index: str, vectors: NDArray[np.float32], k: int) -> Found:
    """Find the nearest documents; equal vectors are sorted by hash."""
    depth = k + MARGIN
    knn = {"field": elasticsearch.VECTOR_FIELD, "k": depth, "num_candidates": max(Dense().search, depth)}
    packed = (base64.b64encode(vector.byteswap()).decode() for vector in vectors)
    bodies = [
        {"knn": {**knn, "query_vector": each}, "docvalue_fields": ["hash", elasticsearch.DIGEST]} for each in packed
    ]
    found = []
    for hits in raw(index, bodies, depth):
        best: dict[int, float] = {}
        ranked = [
            (-best.setdefault(hit.fields[elasticsearch.DIGEST][0], hit.score), hit.fields["hash"][0]) for hit in hits
        ]
        found.append([document for _, document in sorted(ranked)[:k]])
    return found


def raw_sparse(index: str, questions: Sequence[str], k: int) -> Found:
    """Find the documents with the highest scores; equal scores are sorted by hash."""
    terms = (" ".join(PAIRS.of(question)) for question in questions)
    bodies = [
        {"query": {"match": {elasticsearch.TERMS_FIELD: {"query": each}}}, "docvalue_fields": ["hash"]}
        for each in terms
    ]
    ranked = ([(-hit.score, hit.fields["hash"][0]) for hit in hits] for hits in raw(index, bodies, k + MARGIN))
    return [[document for _, document in sorted(hits)[:k]] for hits in ranked]


def raw(index: str, bodies: Sequence[dict[str, Any]], size: int) -> list[Sequence[Hit]]:
    """Return the hits of each search of one `_msearch`."""
    shared = {"size": size, "track_total_hits": False, "stored_fields": "_none_"}
    lines = b"".join(b"{}\n" + msgspec.json.encode({**shared, **body}) + b"\n" for body in bodies)
    CONNECTION.request("POST", f"/{index}/_msearch?{KEPT}", lines, {"content-type": "application/x-ndjson"})
    return [reply.hits.hits for reply in DECODER.decode(CONNECTION.getresponse().read()).responses]


if __name__ == "__main__":
    main()
