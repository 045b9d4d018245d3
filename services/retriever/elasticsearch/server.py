"""A synchronous, thread-safe client of Elasticsearch for what the project uses: indexes, bulk, search and aliases.

It only uses features that every node of version 9 has, without a licence and without scripts.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from itertools import islice
from time import sleep
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import msgspec
from elasticsearch import ConnectionError as NoConnection
from elasticsearch import Elasticsearch, helpers

from services.retriever.elasticsearch.connection import BACK_OFF_S, LONGEST_BACK_OFF_S, connect
from services.retriever.elasticsearch.failures import (
    OVERLOADED,
    PRIVILEGES,
    REFUSED,
    find_reason,
    make_error,
    refuse_reply,
    translate_errors,
)
from shared import settings as settings_module
from shared.errors import Invalid, MathragError, Unavailable

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

Document = tuple[str, Mapping[str, Any]]
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
            list_documents = self._send_all(index, iter(documents))
            self._patient.indices.refresh(index=index)
        if (found := self.count(index)) != list_documents:
            message = f"Elasticsearch at {self._name} holds {found} of {list_documents} documents that it took"
            raise Unavailable(message, hint="see its log, then build again")
        return list_documents

    @property
    def _patient(self) -> Elasticsearch:
        """Return the client for idempotent requests, which may be sent again after a timeout."""
        return self._client.options(retry_on_timeout=True)

    def _send_all(self, index: str, documents: Iterator[Document]) -> int:
        """Send chunks from threads; `documents` is read here, as far ahead as there are threads."""
        list_documents = 0
        sending: deque[Future[int]] = deque()
        with ThreadPoolExecutor(SENDERS, thread_name_prefix="bulk") as threads:
            while chunk := list(islice(documents, CHUNK)):
                sending.append(threads.submit(self._send, index, chunk))
                if len(sending) > SENDERS:
                    list_documents += sending.popleft().result()
            return list_documents + sum(each.result() for each in sending)

    def _send(self, index: str, chunk: Sequence[Document]) -> int:
        actions = ({"_index": index, "_id": document, "_source": fields} for document, fields in chunk)
        answers = helpers.streaming_bulk(
            self._patient.options(retry_on_status=()),  # the helper repeats what is refused, by document
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
        where = f"Elasticsearch at {self._name} refuses document {result.get('_id')} ({result.get('status')})"
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
            raise Invalid(
                f"Elasticsearch finds {MOST_HITS} documents at most in one search, but the request asks for {size}"
            )
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
        lines = [line for body in bodies for line in (self._make_header(body), body)]
        with translate_errors(self._name):
            replies = self._client.msearch(index=index, searches=lines, filter_path=REPLIED)
        return list(replies["responses"])

    def _make_header(self, body: Body) -> Body:
        header: Body = {"allow_partial_search_results": False}
        if self.replicas:  # each copy has a graph of its own: the same search always goes to the same copy
            header = {**header, "preference": f"{crc32(msgspec.json.encode(body)):08x}"}
        return header

    def point(self, alias: str, index: str) -> None:
        """Let `alias` refer only to `index`, in one step."""
        with translate_errors(self._name):
            held = self._client.options(ignore_status=404).indices.get_alias(name=alias)
            before = [name for name in held if name != index] if held.meta.status == 200 else []
            moved = [{"remove": {"index": name, "alias": alias}} for name in before]
            self._client.indices.update_aliases(actions=[*moved, {"add": {"index": index, "alias": alias}}])

    def delete(self, index: str) -> None:
        """Delete an index if it exists."""
        with translate_errors(self._name):
            self._patient.options(ignore_status=404).indices.delete(index=index)

    def discard(self, index: str) -> None:
        """Delete an index whose creation may still be going on, after waiting for it."""
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
