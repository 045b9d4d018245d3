"""A double of the search server that the project's Elasticsearch back ends call, on loopback.

It answers exactly the calls that the project makes, with the real client in front: product header, media types of
version 9, NDJSON, aliases, 400, 401, 404, 409, 429 and 503. `test_search_double.py` compares it with what a real server
was recorded to say. It proves that we speak the protocol and what we make of
errors. It counts BM25 and inner products by itself, over all documents: BM25 with the factor k1 + 1, and inner products
in single precision, added in an order that depends on where a document lies, as the real server (9.5.3) does.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, RLock, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

VENDOR = "application/vnd.elasticsearch+{}; compatible-with={}"
SENT = "application/vnd.elasticsearch+json;compatible-with={}"
BATCHES = ("_bulk", "_msearch")
"""Calls whose body is NDJSON."""
CLAUSES = 8192
"""Terms that a question may have; the real server's limit depends on its memory."""
UUID = "0" * 22
"""Of every index."""
SETTINGS = {"number_of_shards", "number_of_replicas", "refresh_interval", "similarity"}
ADVICE = (
    "please check that any required plugins are installed, or check the breaking changes documentation for removed"
    " settings"
)
EARLY_TERMINATION = "index.dense_vector.hnsw_enable_early_termination"

Source = dict[str, Any]


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    body: Any = None
    media: str = ""
    """Other than usual."""


HEALTH = Answer(200, {"timed_out": False, "number_of_pending_tasks": 0})
"""Of the cluster, once the changes that were asked for before have been made."""


class Held:
    """One index: what was written, and what a refresh has shown."""

    def __init__(self, made: Source, minor: int) -> None:
        self.minor = minor
        self.settings: Source = made.get("settings", {})
        self.properties: Source = made["mappings"]["properties"]
        self.written: dict[str, Source] = {}
        self.shown: dict[str, Source] = {}

    def write(self, document: str, fields: Source) -> Answer:
        """One item of a bulk request; what the mapping does not know is refused, as `dynamic: strict` has it."""
        if unknown := fields.keys() - self.properties.keys():
            why = f"mapping set to strict, dynamic introduction of [{unknown.pop()}] within [_doc] is not allowed"
            return Answer(400, {"type": "strict_dynamic_mapping_exception", "reason": f"[1:1] {why}"})
        for name, value in fields.items():
            if self.properties[name]["type"] != "dense_vector":
                continue
            if isinstance(value, str) and self.minor < 3:
                return Answer(400, {"type": "document_parsing_exception", "reason": "a vector is an array"})
            if (length := len(floats(value))) != (dims := self.properties[name]["dims"]):
                why = f"has a different number of dimensions [{length}] than defined in the mapping [{dims}]"
                where = f"The [dense_vector] field [{name}] in doc [document with id '{document}']"
                return Answer(
                    400, {"type": "document_parsing_exception", "reason": f"[1:1] failed to parse: {where} {why}"}
                )
        status = 200 if document in self.written else 201
        self.written[document] = fields
        return Answer(status)

    def scores(self, body: Source) -> dict[str, float]:
        """Of all documents that are hits."""
        if "knn" in body:
            return self._nearest(body["knn"])
        [(field, match)] = body["query"]["match"].items()
        return self._bm25(field, match["query"].split())

    def _nearest(self, knn: Source) -> dict[str, float]:
        assert knn["k"] <= knn["num_candidates"] <= 10_000
        assert self.properties[knn["field"]]["similarity"] == "max_inner_product"
        asked = floats(knn["query_vector"])
        held = {name: floats(each[knn["field"]]) for name, each in self.shown.items() if knn["field"] in each}
        products = {name: product(vector, asked, at) for at, (name, vector) in enumerate(held.items())}
        scores = {name: float(np.float32(x + 1 if x >= 0 else 1 / (1 - x))) for name, x in products.items()}
        return dict(sorted(scores.items(), key=lambda each: -each[1])[: knn["k"]])

    def _bm25(self, field: str, terms: list[str]) -> dict[str, float]:
        assert self.properties[field]["analyzer"] == "whitespace"
        similarity = self.settings["similarity"][self.properties[field]["similarity"]]
        k1, b = similarity["k1"], similarity["b"]
        # Lucene counts only documents that have a term in the field.
        bags = {name: Counter(held[field].split()) for name, held in self.shown.items() if held[field].strip()}
        average = sum(bag.total() for bag in bags.values()) / max(1, len(bags))
        total: Counter[str] = Counter()
        for term in terms:
            n = sum(term in bag for bag in bags.values())
            idf = math.log(1 + (len(bags) - n + 0.5) / (n + 0.5))
            for name, bag in bags.items():
                if bag[term]:
                    length = k1 * (1 - b + b * bag.total() / average)
                    total[name] += (k1 + 1) * idf * bag[term] / (bag[term] + length)
        return {name: float(np.float32(score)) for name, score in total.items()}


class SearchServer:
    """The state of the server, and how it misbehaves."""

    def __init__(self) -> None:
        self.indexes: dict[str, Held] = {}
        self.aliases: dict[str, set[str]] = {}
        self.seen: list[str] = []
        """Method and path of every call."""
        self.queries: list[tuple[str, dict[str, str]]] = []
        """The same, and the query's fields."""
        self.bodies: list[Any] = []
        self.preferences: list[str | None] = []
        """Which copy of the shard each search of a batch is sent to; None: any."""
        self.sent: list[Source] = []
        """Fields of every document of a bulk request, as they came."""
        self.credentials: set[str] = set()
        """Values of Authorization that are let in; none: everybody is."""
        self.denied: dict[str, str] = {}
        """End of a path -> why such calls are answered with 403."""
        self.lacking: set[str] | None = None
        """Privileges that whoever asks lacks; None: a server without security, which has no such call."""
        self.product: str | None = "Elasticsearch"
        self.version = 9
        self.minor = 5
        self.failures: list[tuple[str, int]] = []
        """(end of a path, status): the next such call is answered so."""
        self.refused: dict[str, list[int]] = {}
        """Document -> statuses of the next bulk items that hold it."""
        self.replies: list[Source] = []
        """What the next searches of a batch get instead of a reply of theirs."""
        self.recovering = False
        """It was killed and has started again, and has not opened its shards yet."""
        self.lost = 0
        """Documents that a refresh does not show."""
        self.unanswered: list[str] = []
        """Methods: the next such call is carried out, and the connection closed in place of a reply."""
        self.answering = Event()
        """Cleared: calls wait."""
        self.answering.set()
        self.waits = ""
        """End of the paths whose calls wait for `answering`."""
        self.waiting = Event()
        """Set when a call waits."""
        self.url = ""
        self._lock = RLock()

    def fail(self, path: str, *statuses: int) -> None:
        """Answer the next calls to paths that end so with these."""
        self.failures += [(path, status) for status in statuses]

    def calls(self, end: str) -> int:
        """How many calls went to paths that end so."""
        return sum(each.endswith(end) for each in self.seen)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """What one call gets."""
        url = urlsplit(target)
        path, query = url.path.strip("/"), dict(parse_qsl(url.query))
        if path.endswith(self.waits) and not self.answering.is_set():
            self.waiting.set()
            self.answering.wait()
        with self._lock:
            self.seen.append(f"{method} /{path}")
            self.queries.append((self.seen[-1], query))
            answer = self._denial(path, headers) or self._refusal(path, headers)
            answer = answer or self._of_cluster(path, body) or self._route(method, path, body)
        kept = [each.split(".") for each in query.get("filter_path", "").split(",") if each]
        return Answer(answer.status, filter_reply(answer.body, kept)) if kept and answer.status == 200 else answer

    def _denial(self, path: str, headers: dict[str, str]) -> Answer | None:
        if self.credentials and headers.get("authorization") not in self.credentials:
            return make_error(401, "security_exception", "missing or wrong credentials")
        for end, why in self.denied.items():
            if path.endswith(end) and (end or not path):
                return make_error(403, "security_exception", why)
        return None

    def _refusal(self, path: str, headers: dict[str, str]) -> Answer | None:
        if not path:
            return Answer(200, {"version": {"number": f"{self.version}.{self.minor}.3"}})  # whatever is accepted
        kinds = ("json", "x-ndjson") if path.endswith(BATCHES) else ("json",)
        wanted = {"accept": ("json",), "content-type": kinds if "content-type" in headers else ("",)}
        for name, allowed in wanted.items():
            if headers.get(name, "") not in [VENDOR.format(kind, self.version) if kind else "" for kind in allowed]:
                reason = "Invalid media-type value on headers [Content-Type, Accept]"
                return make_error(400, "media_type_header_exception", reason)._replace(media="application/json")
        if self.recovering and path.endswith("_count"):
            return Answer(503, shards_failed(503, "no_shard_available_action_exception", None, path.split("/")[0]))
        for failure in self.failures:
            if path.endswith(failure[0]):
                self.failures.remove(failure)
                return make_error(failure[1], "unavailable_exception", "as the test told it")
        return None

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        name, _, call = path.partition("/")
        match method, call or name:
            case "PUT" | "POST", "_bulk":
                return self._bulk(body, name)
            case "POST", "_msearch":
                return self._searches(name, [json.loads(line) for line in body.splitlines()])
            case "POST", "_aliases":
                return self._move(json.loads(body)["actions"])
            case "GET", _ if name == "_alias":
                return self._find_alias(call)
        if method == "GET" and "*" in name:
            return Answer(200, {each: {} for each in self.indexes if fnmatchcase(each, name)})
        if method == "PUT":
            return self._create(name, json.loads(body))
        if name not in self.indexes:
            return make_error(404, "index_not_found_exception", f"no such index [{name}]")
        return self._of(method, name, call, json.loads(body) if body else {})

    def _of_cluster(self, path: str, body: bytes) -> Answer | None:
        if path == "_cluster/health":
            return HEALTH
        return self._list_privileges(json.loads(body)) if path == "_security/user/_has_privileges" else None

    def _list_privileges(self, asked: Source) -> Answer:
        if self.lacking is None:
            why = "no handler found for uri [/_security/user/_has_privileges] and method [POST]"
            return Answer(400, {"error": why})

        def tell(names: list[str]) -> dict[str, bool]:
            return {name: name not in (self.lacking or ()) for name in names}

        indexes = {name: tell(each["privileges"]) for each in asked["index"] for name in each["names"]}
        return Answer(200, {"cluster": tell(asked["cluster"]), "index": indexes})

    def _of(self, method: str, name: str, call: str, body: Source) -> Answer:
        held = self.indexes[name]
        self.bodies.append(body)
        match method, call:
            case "DELETE", "":
                del self.indexes[name]
                return Answer(200, {"acknowledged": True})
            case "POST", "_refresh":
                held.shown = dict(list(held.written.items())[self.lost :])
                return Answer(200, {"_shards": {"failed": 0}})
            case "POST", "_count":
                return Answer(200, {"count": len(held.shown)})
        return make_error(405, "method_not_allowed", f"{method} {call} is none of the calls that the project makes")

    def _create(self, name: str, made: Source) -> Answer:
        if name in self.indexes:
            return make_error(400, "resource_already_exists_exception", f"index [{name}/{UUID}] already exists")
        if name != name.lower():
            return make_error(400, "invalid_index_name_exception", f"Invalid index name [{name}], must be lowercase")
        known = SETTINGS | ({EARLY_TERMINATION} if self.minor >= 2 else set())
        if unknown := made.get("settings", {}).keys() - known:
            return make_error(400, "illegal_argument_exception", f"unknown setting [{unknown.pop()}] {ADVICE}")
        self.indexes[name] = Held(made, self.minor)
        return Answer(200, {"acknowledged": True, "index": name})

    def _bulk(self, body: bytes, name: str) -> Answer:
        assert body.endswith(b"\n")
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        self.sent += lines[1::2]
        for action, fields in zip(lines[::2], lines[1::2], strict=True):
            index, document = action["index"].get("_index", name), action["index"]["_id"]
            refusals = self.refused.get(document)
            done = (
                make_error(refusals.pop(0), "refused", "as told")
                if refusals
                else self.indexes[index].write(document, fields)
            )
            error = {} if done.status < 300 else {"error": (done.body or {}).get("error", done.body)}
            items.append({"index": {"_index": index, "_id": document, "status": done.status, **error}})
        return Answer(200, {"errors": any("error" in item["index"] for item in items), "items": items})

    def _searches(self, name: str, lines: list[Source]) -> Answer:
        replies = []
        for header, body in zip(lines[::2], lines[1::2], strict=True):
            assert header["allow_partial_search_results"] is False
            self.preferences.append(header.get("preference"))
            self.bodies.append(body)
            replies.append(self.replies.pop(0) if self.replies else self._search(name, body))
        return Answer(200, {"took": 1, "responses": replies})

    def _search(self, name: str, body: Source) -> Source:
        if name not in self.indexes:
            return make_failure(404, "index_not_found_exception", f"no such index [{name}]")
        if self.recovering:
            return shards_missing(name)
        if isinstance(body.get("knn", {}).get("query_vector"), str) and self.minor < 4:
            return make_failure(400, "parsing_exception", "[knn] failed to parse field [query_vector]")
        if len(str(body.get("query")).split()) > CLAUSES:
            why = f"Query contains too many nested clauses; maxClauseCount is set to {CLAUSES}"
            return shards_failed(400, "query_shard_exception", f"failed to create query: {why}")
        assert body["stored_fields"] == "_none_"
        held = self.indexes[name]
        hits = [
            {
                "_index": name, "_score": score,
                "fields": {each: [held.shown[document][each]] for each in body["docvalue_fields"]},
            }
            for document, score in self._rank(held, body)
        ]  # fmt: skip
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": hits}, "status": 200}

    def _rank(self, held: Held, body: Source) -> list[tuple[str, float]]:
        scores = held.scores(body)
        wanted = body.get("sort", [{"_score": "desc"}])
        assert wanted in ([{"_score": "desc"}], [{"_score": "desc"}, {"hash": "asc"}])
        order = sorted(scores) if len(wanted) > 1 else [name for name in reversed(held.shown) if name in scores]
        ranked = sorted(order, key=lambda name: -scores[name])  # stable: equals stay as they lie, unless by hash
        return [(name, scores[name]) for name in ranked[: body["size"]]]

    def _move(self, actions: list[Source]) -> Answer:
        moved = {name: set(held) for name, held in self.aliases.items()}
        for action in actions:
            [(verb, each)] = action.items()
            if each["index"] not in self.indexes:
                return make_error(404, "index_not_found_exception", f"no such index [{each['index']}]")
            named = moved.setdefault(each["alias"], set())
            (named.add if verb == "add" else named.remove)(each["index"])
        self.aliases = moved
        return Answer(200, {"acknowledged": True})

    def _find_alias(self, alias: str) -> Answer:
        held = self.aliases.get(alias, set()) & self.indexes.keys()
        if not held:
            return Answer(404, {"error": f"alias [{alias}] missing", "status": 404})
        return Answer(200, {index: {"aliases": {alias: {}}} for index in sorted(held)})


def make_error(status: int, kind: str, reason: str) -> Answer:
    """Make an error in the server's words."""
    return Answer(status, {"error": {"type": kind, "reason": reason}, "status": status})


def make_failure(status: int, kind: str, reason: str) -> Source:
    """Make the reply to one refused search of a batch."""
    cause = {"type": kind, "reason": reason}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


def shards_failed(status: int, kind: str, reason: str | None, index: str = "any") -> Source:
    """The same where the shards refuse it, which the outer reason does not tell."""
    cause = {"type": kind, "reason": reason}
    outer = {"type": "search_phase_execution_exception", "reason": "all shards failed", "phase": "query"}
    shards = [{"shard": 0, "index": index, "node": None, "reason": cause}]
    return {"error": {"root_cause": [cause], **outer, "grouped": True, "failed_shards": shards}, "status": status}


def shards_missing(index: str) -> Source:
    """The reply to one search of a batch while the shard of `index` is not open yet."""
    outer = {"type": "search_phase_execution_exception", "phase": "query", "grouped": True, "failed_shards": []}
    advice = "Consider using `allow_partial_search_results` setting to bypass this error."
    cause = {**outer, "reason": f"Search rejected due to missing shards [[{index}][0]]. {advice}"}
    return {"error": {"root_cause": [], **outer, "reason": "", "caused_by": cause}, "status": 503}


def floats(value: str | list[float]) -> NDArray[np.float32]:
    """A vector as numbers, or as base64 of its floats, the most significant byte first."""
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value), ">f4").astype(np.float32)
    return np.float32(value)


def product(left: NDArray[np.float32], right: NDArray[np.float32], at: int) -> float:
    """The inner product in single precision; where the document lies says from which end its terms are added."""
    terms = left * right
    return float(np.cumsum(terms[::-1] if at % 2 else terms)[-1])


def filter_reply(value: Any, paths: list[list[str]]) -> Any:
    """Return what `filter_path` leaves of a reply, without objects and lists that have become empty."""
    if isinstance(value, list):
        return [kept for each in value if (kept := filter_reply(each, paths)) not in ({}, [])]
    if not isinstance(value, dict) or [] in paths:
        return value
    below = {name: [path[1:] for path in paths if path[0] == name] for name in value}
    kept = {name: filter_reply(each, below[name]) for name, each in value.items() if below[name]}
    return {name: each for name, each in kept.items() if each not in ({}, [])}


@contextmanager
def search_server() -> Iterator[SearchServer]:
    """Run a server on a free port for the length of the block."""
    server = SearchServer()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


def _handler(server: SearchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # Header and body are sent apart: the second would wait 40 ms.

        def handle_one_request(self) -> None:
            """Handle a request of any method."""
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.answer(self.command, self.path, headers, body)
            if self.command in server.unanswered:
                server.unanswered.remove(self.command)
                self.close_connection = True
                return
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            body = json.dumps(answer.body).encode()
            self.send_response(answer.status)
            if server.product is not None:
                self.send_header("X-Elastic-Product", server.product)
            self.send_header("Content-Type", answer.media or SENT.format(server.version))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write nothing to stderr."""

    return Handler
