"""Compare builds of both indexes with the best raw calls for the same index: part of `python -m bench.elasticsearch`.

Both sides start from the same texts, make the same fields in the same batches and fill an index of the same mapping.
The raw side sends them over bare connections as bytes that it encodes itself, while the next batch is made.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from statistics import median
from threading import local
from typing import Any
from urllib.parse import urlsplit

import msgspec

from services.retriever import elasticsearch
from services.retriever.elasticsearch import ElasticsearchServer
from services.retriever.index import PAIRS, Batch
from shared.models.embedding import StaticEmbedder
from shared.settings import Dense, Elasticsearch, Settings

CHUNK = 500
THREADS = (1, 2, 4)
"""Connections of the raw side; the best number is the one to compare with."""
SIGNATURE, RAW = "1" * 64, "2" * 64

Documents = Sequence[tuple[str, str]]
Fields = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]


def compare_builds(served: ElasticsearchServer, batches: Callable[[], Iterator[Batch]], rounds: int) -> None:
    """Print for each kind the median times of both sides, which take turns, and their ratio."""
    embedder = StaticEmbedder(Settings().retrieval.embeddings.path)
    backends = {
        "dense": elasticsearch.ElasticsearchVectors(served, embedder, Dense()),
        "sparse": elasticsearch.ElasticsearchTerms(served, PAIRS, k1=1.2, b=0.75),
    }
    for kind, backend in backends.items():
        ours = f"{served.prefix}-{kind}-{SIGNATURE}"
        sides: dict[str, Callable[[], object]] = {"ours": lambda backend=backend: backend.build(batches(), SIGNATURE)}
        for threads in THREADS:
            raw = Raw(ours, f"{served.prefix}-{kind}-{RAW}", threads)
            sides[f"raw, {threads}"] = lambda raw=raw, backend=backend: raw.build(batches(), backend._fields)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, build in sides.items():
                began = time.perf_counter()
                build()
                seconds[name].append(time.perf_counter() - began)
        report(kind, seconds)


def report(kind: str, seconds: dict[str, list[float]]) -> None:
    """Print a line with both times and their ratio."""
    medians = {name: median(each) for name, each in seconds.items()}
    ours = medians.pop("ours")
    best = min(medians, key=medians.__getitem__)
    said = ", ".join(f"{name} connections {each:.2f} s" for name, each in medians.items())
    ratio, rounds = ours / medians[best], len(seconds["ours"])
    print(f"{kind} build: {ours:.2f} s ({said}), ratio to the best {ratio:.2f}, n = {rounds}", flush=True)


class Raw:
    """Fills `index`, which has the settings and mapping of `like`."""

    def __init__(self, like: str, index: str, threads: int) -> None:
        self._like = like
        self._index = index
        self._threads = threads
        self._host = urlsplit(Elasticsearch().addresses[0]).netloc
        self._local = local()

    def build(self, batches: Iterator[Batch], fields: Fields) -> None:
        """Index all documents and make them searchable."""
        self._call("DELETE", f"/{self._index}?ignore_unavailable=true")
        self._call("PUT", f"/{self._index}", self._copy_settings())
        with ThreadPoolExecutor(self._threads) as threads:
            sent = [threads.submit(self._send, chunk) for chunk in self._chunks(batches, fields)]
        for each in sent:
            each.result()
        self._call("POST", f"/{self._index}/_refresh")

    def _copy_settings(self) -> bytes:
        """Copy settings and mapping of the index `like`."""
        found = msgspec.json.decode(self._call("GET", f"/{self._like}"))[self._like]
        settings = found["settings"]["index"]
        for name in ("creation_date", "uuid", "version", "provided_name"):
            settings.pop(name)
        return msgspec.json.encode({"settings": {"index": settings}, "mappings": found["mappings"]})

    def _chunks(self, batches: Iterator[Batch], fields: Fields) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
        for batch in batches:
            made = list(zip((name for name, _ in batch), fields([text for _, text in batch]), strict=True))
            yield from (made[at : at + CHUNK] for at in range(0, len(made), CHUNK))

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
