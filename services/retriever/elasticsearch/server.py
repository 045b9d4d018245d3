"""An Elasticsearch server as far as the project uses it: indexes, bulk, search, aliases. Synchronous, safe for threads.

Only what every node of version 9 has, without a licence and without scripts.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from elasticsearch import Elasticsearch, helpers

from services.retriever.elasticsearch.failures import URL, reported
from shared import retrieval
from shared.errors import Unavailable

CHUNK = 500
CHUNK_BYTES = 8 << 20
"""Documents and bytes of a bulk request; a server takes 100 MB at most."""
CONNECTIONS = 8
"""Searches at once."""
BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 20.0
RETRIED = (429, 502, 503, 504)


class Found(NamedTuple):
    """A hit."""

    document: str
    score: float


class Server:
    """The one that the settings name."""

    def __init__(self, settings: retrieval.Elasticsearch) -> None:
        """Connects to nothing yet.

        Raises:
            Unavailable: no URL is set, or it is none.
        """
        self.prefix = settings.prefix
        self._retries = settings.retries
        url = settings.url or os.environ.get("ELASTICSEARCH_URL", "")
        if not url:
            raise Unavailable("no Elasticsearch is named", hint=f"set {URL}, as in http://127.0.0.1:9200")
        self._name = urlsplit(url).netloc.rpartition("@")[2]
        try:
            self._client = Elasticsearch(
                url,
                api_key=settings.api_key or None,
                request_timeout=settings.timeout_s,
                connections_per_node=CONNECTIONS,
                max_retries=settings.retries,
                retry_on_status=RETRIED,
                retry_on_timeout=True,
                retry_backoff_base=BACK_OFF_S,
                retry_backoff_cap=LONGEST_BACK_OFF_S,
            )
        except ValueError as error:
            raise Unavailable(f"{URL}: {error}", hint="as in http://127.0.0.1:9200") from None

    def version(self) -> str:
        """What the server says of itself, as in 9.5.3."""
        with reported(self._name):
            return str(self._client.info()["version"]["number"])

    def create(self, index: str, *, settings: Mapping[str, Any], mappings: Mapping[str, Any]) -> None:
        """An empty index; one of that name, which broke off or was found damaged, is gone before."""
        self.delete(index)
        with reported(self._name):
            self._client.indices.create(index=index, settings=settings, mappings=mappings)

    def fill(self, index: str, documents: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
        """Write (hash, fields) as they come, and make them searchable; how many there are.

        Raises:
            Unavailable: one is refused, also when tried again, or not all of them are there afterwards.
        """
        with reported(self._name):
            written = sum(1 for _ in self._written(index, documents))
            self._client.indices.refresh(index=index)
        if (found := self.count(index)) != written:
            said = f"Elasticsearch at {self._name} holds {found} of {written} documents that it took"
            raise Unavailable(said, hint="see its log, then build again")
        return written

    def _written(self, index: str, documents: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[None]:
        actions = ({"_index": index, "_id": document, "_source": fields} for document, fields in documents)
        done = helpers.streaming_bulk(
            self._client,
            actions,
            chunk_size=CHUNK,
            max_chunk_bytes=CHUNK_BYTES,
            raise_on_error=False,  # which would raise before a refused document is tried again
            max_retries=self._retries,
            initial_backoff=BACK_OFF_S,
            max_backoff=LONGEST_BACK_OFF_S,
        )
        for ok, item in done:
            if not ok:
                raise self._refused(item)
            yield

    def _refused(self, item: Mapping[str, Any]) -> Unavailable:
        [said] = item.values()
        error = said.get("error")
        reason = error.get("reason", error) if isinstance(error, dict) else error
        where = f"Elasticsearch at {self._name} refuses document {said.get('_id')} ({said.get('status')})"
        return Unavailable(f"{where}: {reason}", hint="see its log, then build again")

    def count(self, index: str) -> int:
        """Documents that can be found."""
        with reported(self._name):
            return int(self._client.count(index=index)["count"])

    def search(self, index: str, k: int, **body: Any) -> list[Found]:
        """The first `k` hits of a search."""
        with reported(self._name):
            reply = self._client.search(index=index, size=k, source=False, track_total_hits=False, **body)
        return [Found(hit["_id"], float(hit["_score"])) for hit in reply["hits"]["hits"]]

    def point(self, alias: str, index: str) -> None:
        """Let `alias` name `index` alone, in one step."""
        with reported(self._name):
            held = self._client.options(ignore_status=404).indices.get_alias(name=alias)
            before = [name for name in held if name != index] if held.meta.status == 200 else []
            moved = [{"remove": {"index": name, "alias": alias}} for name in before]
            self._client.indices.update_aliases(actions=[*moved, {"add": {"index": index, "alias": alias}}])

    def delete(self, index: str) -> None:
        """Remove an index, if it is there."""
        with reported(self._name):
            self._client.options(ignore_status=404).indices.delete(index=index)

    def indexes(self) -> list[str]:
        """Names of all indexes of our prefix."""
        with reported(self._name):
            return sorted(self._client.indices.get(index=f"{self.prefix}-*"))
