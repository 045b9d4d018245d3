"""Search indexes in Elasticsearch."""

import json
import logging
import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import msgspec
import numpy as np
from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, Elasticsearch, UnsupportedProductError, helpers
from elasticsearch import ConnectionError as NoConnection
from elasticsearch.serializer import CompatibilityModeJsonSerializer, CompatibilityModeNdjsonSerializer
from numpy.typing import NDArray

from mathrag.errors import Invalid, MathragError, Refused, TooLarge, Unavailable
from mathrag.messages import format_count
from services.retriever.index import (
    UNSIGNED,
    Batch,
    IndexMatch,
    TermCutter,
    UnsoundIndex,
    make_refusal,
    read_hashes,
    sort_positions,
    write_hashes,
)
from shared import settings as settings_module
from shared.models.embedding import Embedder
from shared.settings import Dense, VectorGraph

# Translate failures of Elasticsearch and its client into errors that name the setting and the fix.
#
# A server that is away, overloaded or not ready is `Unavailable`. A refused request is `Invalid`, or `TooLarge` for a
# question with too many terms. A server that refuses our key or user is `Refused`, as waiting does not help.

URL = "`retrieval.elasticsearch.url` (or ELASTICSEARCH_URL)"
CERTIFICATES = "`retrieval.elasticsearch.ca_certs` or `retrieval.elasticsearch.fingerprint`"
CLOSED = ("RemoteDisconnected", "BadStatusLine", "reset by peer")
"""Parts of the client's messages for a connection that was closed without a reply, as by a server that expects TLS."""
MAJOR = 9
"""Major version of the client; a server of another one answers in another format, or not at all."""
OVERLOADED = (429, 502, 503, 504)
"""Statuses of a server that is not ready or has too much to do; the same request succeeds later."""
TOO_MANY_TERMS = "too many nested clauses"
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Statuses of a server that does not know our key or user, or does not let it do this."""
PRIVILEGES: Mapping[str, tuple[str, ...]] = {"cluster": ("monitor",), "index": ("read", "write", "manage")}
"""Required privileges of the key or user: on the cluster, and on the indexes and aliases with our prefix."""
MAKE_KEY = "docs/how-to/retrieval.md#api-key-of-elasticsearch"
_GRANTED = re.compile(r"granted by the (cluster|index) privileges \[([^\]]*)\]")


@contextmanager
def translate_errors(server: str) -> Iterator[None]:
    """Translate the errors of `server` inside the block.

    Raises:
        UnsoundIndex: it lacks an index.
        Invalid, TooLarge: it refuses the request as such.
        Refused: it does not know the key or user, or does not let it do this.
        Unavailable: it failed, also after the client's retries; nothing of it holds a key or a password.
    """
    try:
        yield
    except UnsupportedProductError as error:
        hint = f"{URL} must name an Elasticsearch {MAJOR}; forks such as OpenSearch are not supported"
        raise Unavailable(
            f"{_describe(server)} is not an Elasticsearch server", hint=hint, what=_describe(server)
        ) from error
    except ApiError as error:
        raise make_error(server, error.meta.status, error.body) from error
    except TransportError as error:
        if isinstance(error, ConnectionTimeout):
            message, hint = "did not answer in time", "see its load, or raise `retrieval.elasticsearch.timeout_s`"
        elif isinstance(error, TlsError):
            message, hint = _explain_tls(error.message)
        elif any(sign in error.message for sign in CLOSED):
            message = f"closed the connection: {error.message}"
            hint = f"if it speaks TLS, write https:// in {URL}; else see its log"
        else:
            message = f"cannot be reached: {error.message}"
            hint = f"start it, or set {URL}, as in http://127.0.0.1:9200"
        raise Unavailable(f"{_describe(server)} {message}", hint=hint, what=_describe(server)) from error


def _describe(server: str) -> str:
    return f"Elasticsearch at {server}"


def refuse_reply(server: str, reply: Mapping[str, Any]) -> None:
    """Refuse one of the replies of several searches, unless all that should be searched was searched.

    Raises:
        UnsoundIndex, Invalid, TooLarge, Refused, Unavailable: as `translate_errors` does.
    """
    if "error" in reply:
        raise make_error(server, reply["status"], reply)
    failed = reply["_shards"]["failed"]
    if reply["timed_out"] or failed:
        timed_out = "it stopped searching at its time limit (timed_out)"
        why = f"{format_count(failed, 'shard')} failed" if failed else timed_out
        said = f"{_describe(server)} returned only a part of the hits: {why}"
        raise Unavailable(said, hint="see its log and its load", what=_describe(server))


def find_reason(error: object) -> str:
    """Find the cause in the `error` of a reply: that of the first failed shard, or else the error itself.

    `reason` alone is "all shards failed", or empty where `allow_partial_search_results` is off.
    """
    if not isinstance(error, Mapping):
        return str(error or "")
    shards = [shard["reason"] for shard in error.get("failed_shards", ())]
    causes = map(find_reason, [*error.get("root_cause", ()), *shards, error.get("caused_by")])
    return next(filter(None, causes), None) or error.get("reason") or error.get("type") or ""


def _explain_tls(message: str) -> tuple[str, str]:
    """Describe the problem of the server's certificate, and how to fix it."""
    if "Fingerprints did not match" in message:
        hint = "`retrieval.elasticsearch.fingerprint` must be the SHA-256 of its certificate or its authority's"
        return f"has a certificate with another fingerprint: {message}", hint
    if "match" in message:  # the words differ between versions of Python and urllib3
        return f"has a certificate for another name: {message}", f"name it in {URL} as its certificate does"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"has a certificate that is not trusted: {message}", f"name its authority by {CERTIFICATES}"
    return f"refuses the TLS connection: {message}", f"if it speaks no TLS, write http:// in {URL}"


def make_error(server: str, status: int, body: object) -> MathragError:
    """Make the error for a reply with this status."""
    error = body.get("error") if isinstance(body, Mapping) else body
    why, address = find_reason(error), _describe(server)
    if status == HTTPStatus.NOT_FOUND:
        return UnsoundIndex(f"{address} does not have the requested index or document: {why}")
    if status in REFUSED:
        return _make_refusal(address, status, why)
    if status == HTTPStatus.NOT_ACCEPTABLE or "media_type_header_exception" in str(error):
        message = f"{address} is not supported: version {MAJOR} is required"
        return Unavailable(message, hint=f"{URL} must name a server of version {MAJOR}", what=address)
    if status in OVERLOADED:
        hint = "wait, or see its logs; `retrieval.elasticsearch.retries`"
        return Unavailable(f"{address} is overloaded or not ready ({status}): {why}", hint=hint, what=address)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(f"{address} failed ({status}): {why}", hint="see its log", what=address)
    if TOO_MANY_TERMS in why:
        return TooLarge(f"{address} refuses a question with too many terms: {why}", hint="ask a shorter question")
    return Invalid(f"{address} refuses a request ({status}): {why}", hint="see its log")


def _make_refusal(address: str, status: int, why: str) -> Refused:
    """Make the error for a key or user that the server does not know, or that lacks a privilege, which it names."""
    found = _GRANTED.search(why)
    kind, granting = (found[1], re.findall(r"\w+", found[2])) if found else ("", [])
    if missing := next((each for each in PRIVILEGES.get(kind, ()) if each in granting), None):
        message = f"{address} refuses access ({status}): the key or user lacks the {kind} privilege `{missing}`: {why}"
        return Refused(message, hint=f"grant it, or make a new key: {MAKE_KEY}", what=address)
    hint = f"set `retrieval.elasticsearch.api_key` to a valid key (how to make one: {MAKE_KEY}), or user and password"
    return Refused(f"{address} refuses access ({status}): {why}", hint=f"{hint} in {URL}", what=address)


# Connect to the Elasticsearch server of the settings, at the first request.

BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 2.0
"""Upper bound of the pause between attempts, in seconds; calls wait out longer outages, not a request."""

logging.getLogger("elastic_transport.transport").setLevel(logging.WARNING)  # it has an INFO line for each request


class _Msgspec:
    """Encodes and decodes JSON in a third of the standard library's time."""

    def json_dumps(self, data: Any) -> bytes:
        return msgspec.json.encode(data)

    def json_loads(self, data: bytes) -> Any:
        return msgspec.json.decode(data)


class _Json(_Msgspec, CompatibilityModeJsonSerializer):
    pass


class _Ndjson(_Msgspec, CompatibilityModeNdjsonSerializer):
    pass


SERIALIZERS = {each.mimetype: each() for each in (_Json, _Ndjson)}


def connect(settings: settings_module.Elasticsearch, connections: int) -> Elasticsearch:
    """Make a client for this number of threads; it connects at its first request.

    A request that is refused for now, or cannot be sent, is sent again up to `settings.retries` times, if there are
    several nodes to another one. One that timed out is not, since the server may have executed it.

    Raises:
        Unavailable: no URL is set, or the URL, the key or the file of `ca_certs` cannot be used.
    """
    try:
        urls = settings.addresses
        if not urls:
            raise Unavailable(
                "no Elasticsearch server is configured", hint=f"set {URL}, as in {settings_module.SERVER_URL}"
            )
        return Elasticsearch(
            list(urls),
            api_key=settings.api_key or None,
            request_timeout=settings.timeout_s,
            connections_per_node=connections,
            max_retries=settings.retries,
            retry_on_status=OVERLOADED,
            retry_on_timeout=False,
            retry_backoff_base=BACK_OFF_S,
            retry_backoff_cap=LONGEST_BACK_OFF_S,
            serializers=SERIALIZERS,
            **_choose_trust(settings),
        )
    except ValueError as error:
        raise Unavailable(str(error), hint=f"correct {URL}, as in {settings_module.SERVER_URL}") from None


def _choose_trust(settings: settings_module.Elasticsearch) -> dict[str, Any]:
    """Return the client's options for the server's certificate: known authorities, `ca_certs` or `fingerprint`."""
    if settings.fingerprint:
        return {"ssl_assert_fingerprint": settings.fingerprint}
    if not settings.ca_certs:
        return {}
    try:
        ssl.create_default_context(cafile=settings.ca_certs)  # the client itself would read it with the first request
        return {"ca_certs": str(settings.ca_certs)}
    except OSError as error:  # also ssl.SSLError: the file holds no certificate
        reason = (
            error.strerror
            if isinstance(error, FileNotFoundError | PermissionError)
            else "it does not contain a certificate"
        )
        hint = "name the PEM file of its authority, such as config/certs/http_ca.crt of an Elasticsearch of version 9"
        message = f"`retrieval.elasticsearch.ca_certs`: {settings.ca_certs} cannot be used: {reason}"
        raise Unavailable(message, hint=hint) from None


# A synchronous, thread-safe client of Elasticsearch for the operations that the project uses: indexes, bulk, search and
# aliases.
#
# It only uses features that every node of version 9 has, without a licence and without scripts.

CHUNK = 500
CHUNK_BYTES = 8 << 20
"""Documents per bulk request, and its bytes; a server takes at most 100 MB."""
CONNECTIONS = 8
"""Connections to the server at once."""
SENDERS = 2
"""Bulk requests that are sent at once, while the next documents are made."""
SHARE_OF_TIMEOUT = 0.5
"""Share of the client's timeout that the server itself waits, so that it gives up first and reports why."""
MOST_HITS = 10_000
"""Upper bound of a search's hits: the server's `index.max_result_window`, and its bound of `num_candidates`."""
NOT_SENT = "Failed to establish a new connection"
"""Part of the client's message for a node that is away, so that another node can be asked without fear."""
HITS_AT_ONCE = 100_000
"""Hits in one reply of several searches: about 13 MB, which the server holds in its memory as well."""
REPLIED = tuple(f"responses.{field}" for field in (
    "hits.hits._score", "hits.hits.fields", "timed_out", "_shards.failed", "error", "status",
))  # fmt: skip
"""Parts of each reply that the server sends; `status` is always there, so that no reply is left out."""

Fields = Mapping[str, Any]
Document = tuple[str, Fields]
"""Hash and fields of a document."""
Body = Mapping[str, Any]


class ElasticsearchServer:
    """Sends requests to the Elasticsearch server that the settings name."""

    def __init__(self, settings: settings_module.Elasticsearch) -> None:
        """Prepare the client without connecting.

        Raises:
            Unavailable: see `connect`.
        """
        self.prefix = settings.prefix
        self.replicas = settings.replicas
        self._nodes = len(settings.addresses)
        self._retries = settings.retries
        self._patience = f"{round(1000 * SHARE_OF_TIMEOUT * settings.timeout_s)}ms"
        self._client = connect(settings, CONNECTIONS)
        self._name = ", ".join(urlsplit(url).netloc.rpartition("@")[2] for url in settings.addresses)

    def create(self, index: str, *, settings: Mapping[str, Any], mappings: Mapping[str, Any]) -> None:
        """Create an empty index in the place of any unfinished or damaged one of that name.

        It is requested only once, as a second request would find the index of the first. After a failure, `discard` it.
        """
        self.delete(index)
        with translate_errors(self._name):
            for left in reversed(range(self._nodes)):
                try:
                    self._client.options(max_retries=0).indices.create(
                        index=index,
                        settings=settings,
                        mappings=mappings,
                        wait_for_active_shards=0,
                        master_timeout=self._patience,
                        timeout=self._patience,
                    )
                except NoConnection as error:
                    if not left or NOT_SENT not in error.message:
                        raise
                else:
                    return

    def fill(self, index: str, documents: Iterable[Document]) -> int:
        """Write documents while they are made, make them searchable, and return their number.

        Raises:
            Invalid: the server refuses a document for good.
            Refused: it does not let us write.
            Unavailable: it refuses one for now, even after retries, or holds fewer documents than it accepted.
        """
        with translate_errors(self._name):
            sent = self._send_all(index, iter(documents))
            self._patient.indices.refresh(index=index)
        if (found := self.count(index)) != sent:
            message = f"{_describe(self._name)} has {found} documents, but {sent} were sent to it"
            raise Unavailable(message, hint="see its log, then build again")
        return sent

    @property
    def _patient(self) -> Elasticsearch:
        """Return the client for idempotent requests, which may be sent again after a timeout."""
        return self._client.options(retry_on_timeout=True)

    def _send_all(self, index: str, documents: Iterator[Document]) -> int:
        """Send chunks from threads; `documents` is read here, as far ahead as there are threads."""
        sent = 0
        sending: deque[Future[int]] = deque()
        with ThreadPoolExecutor(SENDERS, thread_name_prefix="bulk") as threads:
            while chunk := list(islice(documents, CHUNK)):
                sending.append(threads.submit(self._send, index, chunk))
                if len(sending) > SENDERS:
                    sent += sending.popleft().result()
            return sent + sum(each.result() for each in sending)

    def _send(self, index: str, chunk: Sequence[Document]) -> int:
        actions = ({"_index": index, "_id": document, "_source": fields} for document, fields in chunk)
        answers = helpers.streaming_bulk(
            self._patient.options(retry_on_status=()),  # the helper repeats refused documents
            actions,
            chunk_size=CHUNK,
            max_chunk_bytes=CHUNK_BYTES,
            raise_on_error=False,  # which would raise before a refused document is tried again
            yield_ok=False,
            max_retries=self._retries,
            retry_on_status=OVERLOADED,
            initial_backoff=BACK_OFF_S,
            max_backoff=LONGEST_BACK_OFF_S,
            timeout=self._patience,
        )
        if refused := [item for _, item in answers]:  # all are read: an open generator would keep its span open
            raise self._make_refusal(refused[0])
        return len(chunk)

    def _make_refusal(self, item: Mapping[str, Any]) -> MathragError:
        [result] = item.values()
        if result.get("status") in REFUSED:
            return make_error(self._name, result["status"], result)
        where = f"{_describe(self._name)} refuses document {result.get('_id')} ({result.get('status')})"
        raised = Unavailable if result.get("status") in OVERLOADED else Invalid
        return raised(f"{where}: {find_reason(result.get('error'))}", hint="see its log, then build again")

    def count(self, index: str) -> int:
        """Count the searchable documents."""
        with translate_errors(self._name):
            return int(self._client.count(index=index)["count"])

    @cached_property
    def version(self) -> tuple[int, int]:
        """Return the major and minor version of the node that was asked first."""
        with translate_errors(self._name):
            major, minor, *_ = self._client.info()["version"]["number"].split(".")
        return int(major), int(minor)

    def list_missing_privileges(self) -> list[str]:
        """List the privileges that our key or user lacks, in words; none where the server checks no privileges.

        Raises:
            Refused: the server does not know the key or user.
            Unavailable: the server does not answer.
        """
        ours = f"{self.prefix}-*"
        with translate_errors(self._name):
            # A server without security has no such path, and answers 400.
            reply = self._client.options(ignore_status=(400, 404, 405)).security.has_privileges(
                cluster=list(PRIVILEGES["cluster"]), index=[{"names": [ours], "privileges": list(PRIVILEGES["index"])}]
            )
        if reply.meta.status != 200:
            return []
        cluster, indexes = reply["cluster"], reply["index"][ours]
        return [f"`{each}` on the cluster" for each in PRIVILEGES["cluster"] if not cluster[each]] + [
            f"`{each}` on the indexes `{ours}`" for each in PRIVILEGES["index"] if not indexes[each]
        ]

    def search(self, index: str, size: int, searches: Sequence[Body]) -> list[list[Body]]:
        """Return the first `size` hits of each search in the server's order, with `_score` and the requested `fields`.

        Raises:
            Invalid: `size` is more than the server finds at once, or it refuses a search.
            TooLarge: a search has more terms than the server takes.
            UnsoundIndex: the index is gone.
            Unavailable: the server does not answer, or has not searched everything, also when asked again.
        """
        if size > MOST_HITS:
            message = (
                f"Elasticsearch finds {MOST_HITS} documents at most in one search, but the request asks for {size}"
            )
            raise Invalid(message)
        shared = {"size": size, "track_total_hits": False, "stored_fields": "_none_"}
        bodies = [{**shared, **each} for each in searches]
        step = HITS_AT_ONCE // size
        replies = [
            reply for at in range(0, len(bodies), step) for reply in self._fetch_replies(index, bodies[at : at + step])
        ]
        return [reply.get("hits", {}).get("hits", []) for reply in replies]

    def _fetch_replies(self, index: str, bodies: Sequence[Body]) -> list[Body]:
        """Return a complete reply for each search; searches that are refused for now are sent again."""
        replies = self._search_once(index, bodies)
        for attempt in range(self._retries):
            refused = [at for at, reply in enumerate(replies) if reply["status"] in OVERLOADED]
            if not refused:
                break
            sleep(min(BACK_OFF_S * 2**attempt, LONGEST_BACK_OFF_S))
            for at, reply in zip(refused, self._search_once(index, [bodies[at] for at in refused]), strict=True):
                replies[at] = reply
        for reply in replies:
            refuse_reply(self._name, reply)
        return replies

    def _search_once(self, index: str, bodies: Sequence[Body]) -> list[Body]:
        lines: list[Body] = []
        for body in bodies:
            header: dict[str, Any] = {"allow_partial_search_results": False}
            if self.replicas:  # each copy has its own graph: the same search always goes to the same copy
                header["preference"] = f"{crc32(msgspec.json.encode(body)):08x}"
            lines += (header, body)
        with translate_errors(self._name):
            replies = self._client.msearch(index=index, searches=lines, filter_path=REPLIED)
        return list(replies["responses"])

    def point(self, alias: str, index: str) -> None:
        """Let `alias` refer only to `index`, in one step."""
        with translate_errors(self._name):
            held = self._client.options(ignore_status=404).indices.get_alias(name=alias)
            before = [name for name in held if name != index] if held.meta.status == 200 else []
            moved = [{"remove": {"index": name, "alias": alias}} for name in before]
            self._client.indices.update_aliases(actions=[*moved, {"add": {"index": index, "alias": alias}}])

    def delete(self, index: str) -> None:
        with translate_errors(self._name):
            self._patient.options(ignore_status=404).indices.delete(index=index)

    def discard(self, index: str) -> None:
        """Delete an index whose creation may still be in progress, after waiting for it."""
        with suppress(MathragError), translate_errors(self._name):  # a key may lack the right to ask
            self._client.cluster.health(wait_for_events="languid", timeout=self._patience)
        self.delete(index)

    def indexes(self) -> list[str]:
        """List all indexes that this installation built: PREFIX-KIND-SIGNATURE.

        Those of installations with a longer prefix, such as PREFIX-staging, are not listed.
        """
        ours = re.compile(f"{self.prefix}-(dense|sparse)-[0-9a-f]{{64}}")
        with translate_errors(self._name):
            return sorted(name for name in self._client.indices.get(index=f"{self.prefix}-*") if ours.fullmatch(name))


# Indexes on a server: one physical index per build, named by its signature, which the index's folder refers to.
#
# A build only writes into an index that is searched to repair a damaged one. The alias PREFIX-KIND-corpus-ID names the
# build that a corpus uses now. Searches go to the physical index, so that replies of old jobs stay reproducible.

FILE = "elasticsearch.json"
SETTINGS: Mapping[str, Any] = {"number_of_shards": 1, "refresh_interval": "-1"}
"""One shard, so that BM25 counts over all documents; no automatic refresh."""
HASH: Mapping[str, Any] = {"type": "keyword"}


class ServerIndex:
    """An index on a server, with the hashes of its documents."""

    def __init__(self, server: ElasticsearchServer, index: str, documents: list[str]) -> None:
        self.server = server
        self.index = index
        self.documents = documents

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps({"index": self.index, "documents": len(self.documents)}))
        write_hashes(folder, self.documents)


class ServerBackend:
    """Base of a `Backend` whose indexes are on a server."""

    kind = ""

    def __init__(self, server: ElasticsearchServer) -> None:
        self._server = server

    def check(self, folder: Path) -> None:
        """Check that the server still holds the index to which `folder` refers.

        Raises:
            UnsoundIndex: the index is gone, or holds another number of documents.
            Unavailable: the server does not answer.
        """
        index, documents = _read_reference(folder)
        found = self._server.count(index)
        if found != documents:
            raise make_refusal(folder, f"{index} has {found} documents on the server, but {documents} were built")

    def point(self, folder: Path, corpus: int) -> None:
        """Let the corpus's alias name the index in `folder`."""
        self._server.point(f"{self._server.prefix}-{self.kind}-corpus-{corpus}", _read_reference(folder)[0])

    def _open_index(self, folder: Path) -> ServerIndex:
        """Return the name on the server and the document hashes of the index to which `folder` refers."""
        return ServerIndex(self._server, _read_reference(folder)[0], read_hashes(folder))

    def _build_index(
        self, signature: str, batches: Iterable[Batch], fields: Callable[[Sequence[str]], Iterable[Fields]],
        *, settings: Fields, properties: Fields,
    ) -> ServerIndex:  # fmt: skip
        """Build an index of all documents, all or nothing; `fields` makes the fields of a batch's texts.

        Raises:
            Invalid: `batches` has no document, or the server permanently rejects a document or these parameters.
            Unavailable: the server takes no documents now.
        """
        index = f"{self._server.prefix}-{self.kind}-{signature}"
        documents: list[str] = []

        def list_documents() -> Iterator[tuple[str, Fields]]:
            for batch in batches:
                documents.extend(document for document, _ in batch)
                for (document, _), each in zip(batch, fields([text for _, text in batch]), strict=True):
                    yield document, {"hash": document, **each}

        mappings = {"dynamic": "strict", "_source": {"enabled": False}, "properties": {"hash": HASH, **properties}}
        try:
            copies = {"number_of_replicas": self._server.replicas}
            self._server.create(index, settings={**SETTINGS, **copies, **settings}, mappings=mappings)
            self._server.fill(index, list_documents())
            order = sort_positions(documents)
        except BaseException:
            with suppress(MathragError):
                self._server.discard(index)
            raise
        return ServerIndex(self._server, index, [documents[at] for at in order])


def _read_reference(folder: Path) -> tuple[str, int]:
    found = json.loads((folder / FILE).read_text())
    return found["index"], found["documents"]


# Search vectors on Elasticsearch: a `dense_vector` field with Lucene's HNSW graph of floats, bytes or bits.
#
# The best hits of a graph of bytes or bits are scored again with the floats, so that scores are as exact as without.
#
# A text without a known token has a zero vector. Such a document is stored without a vector and never found; such a
# question finds nothing. The similarity is `max_inner_product`, in single precision: its score is 1 + x for an inner
# product x >= 0 and 1 / (1 - x) below, from which the cosine is computed back.
#
# Lucene scores several vectors at once and adds in an order that depends on their positions, so equal vectors get
# scores that differ in the last digits. Each document therefore has a digest of its vector, and all documents of one
# digest get the highest score among them.

VECTOR_FIELD = "vector"
DIGEST = "digest"
MARGIN = 2
"""Extra hits per search, so that nearly all that are equal to the last one are among them."""
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

    def __init__(self, place: ServerIndex, embedder: Embedder, candidates: int, *, rescored: bool) -> None:
        self._place = place
        self._embedder = embedder
        self._candidates = candidates
        self._rescored = rescored
        self.documents = place.documents
        self.save = place.save

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return the `k` nearest documents of each question, as far as the graph finds them."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        nonzero = np.flatnonzero(vectors.any(axis=1)).tolist()
        packed = self._place.server.version >= PACKED_QUESTIONS_SINCE
        encoded = [encode_vector(vectors[at], packed=packed) for at in nonzero]
        found = dict(zip(nonzero, self._fetch(encoded, k, max(k, min(k + MARGIN, MOST_HITS))), strict=True))
        return [rank_hits(found.get(at, []), k) for at in range(len(vectors))]

    def _fetch(self, vectors: Sequence[Vector], k: int, fetched: int) -> list[list[Body]]:
        """Fetch the hits of each vector: all that can be among the first `k`, and perhaps more."""
        candidates = min(max(self._candidates, fetched), MOST_HITS)
        knn: dict[str, Any] = {"field": VECTOR_FIELD, "k": fetched, "num_candidates": candidates}
        if self._rescored:
            knn["rescore_vector"] = {"oversample": OVERSAMPLE}
        searches = [{"knn": {**knn, "query_vector": each}, "docvalue_fields": ["hash", DIGEST]} for each in vectors]
        found = self._place.server.search(self._place.index, fetched, searches)
        cut = [at for at, hits in enumerate(found) if len(hits) == fetched < MOST_HITS and is_cut(hits, k)]
        if cut:
            deeper = self._fetch([vectors[at] for at in cut], k, min(fetched * DEEPER, MOST_HITS))
            for at, hits in zip(cut, deeper, strict=True):
                found[at] = hits
        return found


class ElasticsearchVectors(ServerBackend):
    """The `Backend` of dense indexes on a server."""

    kind = "dense"

    def __init__(
        self, server: ElasticsearchServer, embedder: Embedder, dense: Dense, vectors: VectorGraph = "hnsw"
    ) -> None:
        super().__init__(server)
        self._embedder = embedder
        self._dense = dense
        self._vectors = vectors
        self._is_quantised = vectors != "hnsw"

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
            settings={EARLY_TERMINATION: False} if knows else {}, properties={VECTOR_FIELD: field, DIGEST: digest},
        )  # fmt: skip
        return self._serve(place)

    def _make_fields(self, texts: Sequence[str]) -> Iterator[Fields]:
        packed = self._server.version >= PACKED_DOCUMENTS_SINCE
        for vector in self._embedder.embed_documents(texts):
            known = vector.any()
            yield {VECTOR_FIELD: encode_vector(vector, packed=packed), DIGEST: digest_vector(vector)} if known else {}

    def load(self, folder: Path) -> ServedVectors:
        return self._serve(self._open_index(folder))

    def _serve(self, place: ServerIndex) -> ServedVectors:
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


# Search words on Elasticsearch: BM25 over the same terms as the embedded index.
#
# Documents and questions are cut into terms here and joined by blanks; the server's `whitespace` analyser takes them
# apart again. Lucene dropped BM25's factor k1 + 1 in version 8, but Elasticsearch kept it (LegacyBM25Similarity), so
# its scores are divided by it. They then equal those of bm25s's method `lucene` but for two roundings: Elasticsearch
# computes in single precision, and keeps a document's length in one byte (SmallFloat), which is exact up to 40 terms
# and up to 11 % short above.

TERMS_FIELD = "terms"
SIMILARITY = "ours"
BY_HASH = {"sort": [{"_score": "desc"}, {"hash": "asc"}]}
"""Sort order that is exact for any number of equal scores, but lets Lucene skip no document with a low score."""


class ServedTerms:
    """Searches words on a server, as `Bm25Index` does in memory."""

    def __init__(self, place: ServerIndex, words: TermCutter, k1: float) -> None:
        self._place = place
        self._words = words
        self._factor = k1 + 1
        self.documents = place.documents
        self.save = place.save

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        terms = {at: words for at, question in enumerate(questions) if (words := self._words.of(question))}
        found = dict(zip(terms, self._fetch(list(map(make_query, terms.values())), k), strict=True))
        return [self._rank(found.get(at, []), k) for at in range(len(questions))]

    def _fetch(self, queries: list[Body], k: int) -> list[list[Body]]:
        """Fetch the hits of each query: all that can be among the first `k`, and perhaps more."""
        search, index = self._place.server.search, self._place.index
        size = max(k, min(k + MARGIN, MOST_HITS))
        found = search(index, size, queries)
        cut = [at for at, hits in enumerate(found) if len(hits) == size and hits[-1]["_score"] == hits[k - 1]["_score"]]
        again = search(index, k, [{**queries[at], **BY_HASH} for at in cut])
        for at, hits in zip(cut, again, strict=True):
            found[at] = hits
        return found

    def _rank(self, hits: list[Body], k: int) -> list[IndexMatch]:
        ranked = sorted((-hit["_score"], hit["fields"]["hash"][0]) for hit in hits)
        return [IndexMatch(document, -score / self._factor) for score, document in ranked[:k]]


def make_query(terms: Sequence[str]) -> Body:
    """Make the query for documents that share any of `terms`."""
    return {"query": {"match": {TERMS_FIELD: {"query": " ".join(terms)}}}, "docvalue_fields": ["hash"]}


class ElasticsearchTerms(ServerBackend):
    """The `Backend` of sparse indexes on a server."""

    kind = "sparse"

    def __init__(self, server: ElasticsearchServer, words: TermCutter, *, k1: float, b: float) -> None:
        super().__init__(server)
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        """Return the formula and the tokenizer; the server's address does not matter.

        `factor` multiplies the server's scores. Indexes of release 0.1 have none: their scores were k1 +
        1 times the formula's.
        """
        formula = {"backend": "elasticsearch BM25", "k1": self._k1, "b": self._b, "factor": "1 / (k1 + 1)"}
        return {**formula, **self._words.recipe()}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> ServedTerms:
        """Stream all documents to a new index; only their hashes stay in memory."""
        similarity = {"type": "BM25", "k1": self._k1, "b": self._b}
        field = {"type": "text", "analyzer": "whitespace", "similarity": SIMILARITY, "index_options": "freqs"}
        place = self._build_index(
            signature, batches, self._make_fields,
            settings={"similarity": {SIMILARITY: similarity}}, properties={TERMS_FIELD: field},
        )  # fmt: skip
        return ServedTerms(place, self._words, self._k1)

    def _make_fields(self, texts: Sequence[str]) -> Iterator[Fields]:
        return ({TERMS_FIELD: " ".join(self._words.of(text))} for text in texts)

    def load(self, folder: Path) -> ServedTerms:
        return ServedTerms(self._open_index(folder), self._words, self._k1)
