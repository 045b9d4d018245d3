"""Records what a real Elasticsearch answers to everything that the project sends.

    python -m tests.doubles.elasticsearch_recorder http://127.0.0.1:9200 [RESTART] > elasticsearch-9.5.3.jsonl

The server must be empty of indexes called recorded-*. RESTART is a command that kills the server and starts it again
without waiting; then the answers of the recovering server are recorded, too. The first line says version and date.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from elastic_transport import Urllib3HttpNode
from elasticsearch import ApiError, Elasticsearch

from mathrag.errors import MathragError, Unavailable
from services.retriever.elasticsearch import (
    ElasticsearchServer,
    ElasticsearchTerms,
    ElasticsearchVectors,
    ServedTerms,
    ServedVectors,
    ServerIndex,
)
from services.retriever.index import PAIRS
from shared import settings
from tests.unit.retrieval import HashedWords

PREFIX = "recorded"
SIGNATURE, OTHER, MISSING = "a" * 64, "b" * 64, "c" * 64
TERMS, VECTORS = f"{PREFIX}-sparse-{SIGNATURE}", f"{PREFIX}-dense-{SIGNATURE}"
DOCUMENTS = [
    (f"{number:064x}", text) for number, text in enumerate(("the area of a circle", "a circle", "prime numbers", ""))
]
HEADERS = ("accept", "content-type")
SENT = {"accept": "application/vnd.elasticsearch+json; compatible-with=9"}
NDJSON = {**SENT, "content-type": "application/vnd.elasticsearch+x-ndjson; compatible-with=9"}
JSON = {**SENT, "content-type": "application/vnd.elasticsearch+json; compatible-with=9"}


class Recorder:
    """Keeps every exchange that goes through the client."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self.name = ""

    @contextmanager
    def record(self) -> Iterator[None]:
        """Keep every request of the block."""
        perform = Urllib3HttpNode.perform_request

        def perform_and_keep(node: Any, method: str, target: str, **arguments: Any) -> Any:
            answer = perform(node, method, target, **arguments)
            self._keep(method, target, arguments, answer)
            return answer

        with patch.object(Urllib3HttpNode, "perform_request", perform_and_keep):
            yield

    def _keep(self, method: str, target: str, arguments: Mapping[str, Any], answer: Any) -> None:
        headers, body = arguments.get("headers") or {}, arguments.get("body")
        self.exchanges.append({
            "name": self.name,
            "request": {
                "method": method, "target": target,
                "headers": {name: headers[name] for name in HEADERS if name in headers},
                "body": body.decode() if body else "",
            },
            "response": {
                "status": answer.meta.status,
                "headers": {
                    name: answer.meta.headers[name] for name in ("content-type", "x-elastic-product")
                    if name in answer.meta.headers
                },
                "body": json.loads(answer.body) if answer.body else None,
            },
        })  # fmt: skip


def main() -> None:
    """Write all exchanges to the standard output."""
    url, *restart = sys.argv[1:]
    recorder = Recorder()
    server = ElasticsearchServer(settings.Elasticsearch(url=url, prefix=PREFIX, retries=0, timeout_s=10))
    with recorder.record():
        for name, call in scenario(server, Elasticsearch(url, max_retries=0)):
            recorder.name = name
            with suppress(MathragError, ApiError):
                call()
        if restart:
            record_recovery(recorder, server, restart[0])
        recorder.name = ""
        for index in server.indexes():
            server.delete(index)
    kept = [each for each in recorder.exchanges if each["name"]]
    version = kept[0]["response"]["body"]["version"]["number"]
    head = {"server": "Elasticsearch", "version": version, "recorded": f"{datetime.now(UTC):%Y-%m-%d}"}
    sys.stdout.writelines(json.dumps(line) + "\n" for line in (head, *kept))


def scenario(server: ElasticsearchServer, raw: Elasticsearch) -> Iterator[tuple[str, Any]]:
    """(name, what is called), in the order that the replay keeps to."""
    terms = ElasticsearchTerms(server, PAIRS, k1=1.2, b=0.75)
    vectors = ElasticsearchVectors(server, HashedWords(), settings.Dense())

    def ask(method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> Any:
        return lambda: raw.perform_request(method, path, headers=headers, body=body)

    bulk = [{"index": {"_index": VECTORS, "_id": "d" * 64}}, {"hash": "d" * 64, "other": 1}]
    short = [{"index": {"_index": VECTORS, "_id": "e" * 64}}, {"hash": "e" * 64, "vector": [0.5, 0.5]}]
    lines = "".join(json.dumps(line) + "\n" for line in (*bulk, *short))
    yield "version", lambda: server.version
    yield "build of terms", lambda: terms.build([DOCUMENTS], SIGNATURE)
    yield "build of vectors", lambda: vectors.build([DOCUMENTS], SIGNATURE)
    words = ServedTerms(ServerIndex(server, TERMS, []), PAIRS, 1.2)
    nearest = ServedVectors(ServerIndex(server, VECTORS, []), HashedWords(), candidates=16)
    yield "search of terms", lambda: words.search(["circle area", "prime"], 3)
    yield "search of vectors", lambda: nearest.search(["circle area", "prime"], 2)
    yield "search of an index that is gone", lambda: server.search(f"{PREFIX}-sparse-{MISSING}", 3, [QUERY])
    yield "count of an index that is gone", lambda: server.count(f"{PREFIX}-sparse-{MISSING}")
    yield "creation of an index that exists", ask("PUT", f"/{TERMS}", JSON, "{}")
    yield "creation of an index of a wrong name", ask("PUT", "/Recorded", JSON, "{}")
    yield "creation with an unknown setting", ask("PUT", f"/{PREFIX}-x", JSON, '{"settings": {"index.nonsense": 1}}')
    yield "documents that do not fit the mapping", ask("PUT", "/_bulk", NDJSON, lines)
    yield "alias that is new", lambda: server.point(f"{PREFIX}-dense-corpus-1", VECTORS)
    yield "alias that is moved", lambda: server.point(f"{PREFIX}-dense-corpus-1", TERMS)
    yield "indexes of the prefix", server.indexes
    yield "deletion", lambda: server.discard(VECTORS)
    yield "deletion of what is gone", lambda: server.delete(VECTORS)
    yield "media type of another version", ask("GET", f"/{TERMS}", {"accept": SENT["accept"].replace("9", "7")})


QUERY: Mapping[str, Any] = {"query": {"match": {"terms": {"query": "circle"}}}, "docvalue_fields": ["hash"]}


def record_recovery(recorder: Recorder, server: ElasticsearchServer, restart: str) -> None:
    """Keep what the server answers from its start on until it searches again: each answer once."""
    recorder.name, before = "while it recovers", len(recorder.exchanges)
    subprocess.run(restart, shell=True, check=True)  # noqa: S602 - the command is the user's
    while is_away(server):
        time.sleep(0.01)
    seen = {}
    for exchange in recorder.exchanges[before:]:
        seen.setdefault(json.dumps([exchange["request"]["target"], answer(exchange)]), exchange)
    recorder.name, recorder.exchanges[before:] = "", [each for each in seen.values() if answer(each) != "whole"]


def is_away(server: ElasticsearchServer) -> bool:
    """Whether it refuses a search or a count."""
    refused = 0
    for ask in (lambda: server.count(TERMS), lambda: server.search(TERMS, 3, [QUERY])):
        try:
            ask()
        except Unavailable:
            refused += 1
    return bool(refused)


def answer(exchange: Mapping[str, Any]) -> str:
    """What tells one answer of a recovering server from the next."""
    body = exchange["response"]["body"]
    error = body.get("error") or body.get("responses", [{}])[0].get("error")
    return json.dumps(error) if error else "whole"


if __name__ == "__main__":
    main()
