"""Indexes on a server: one physical index per build, named by its signature, which the index's folder refers to.

A build only writes into an index that is searched to repair a damaged one. The alias PREFIX-KIND-corpus-ID names the
build that a corpus uses now. Searches go to the physical index, so that replies of old jobs stay reproducible.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from services.retriever import hashes
from services.retriever.elasticsearch.server import ElasticsearchServer
from services.retriever.files import make_refusal
from services.retriever.ports import Batch
from shared.errors import MathragError

FILE = "elasticsearch.json"
SETTINGS: Mapping[str, Any] = {"number_of_shards": 1, "refresh_interval": "-1"}
"""One shard, so that BM25 counts over all documents; no automatic refresh."""
HASH: Mapping[str, Any] = {"type": "keyword"}

Fields = Mapping[str, Any]


class ServerIndex:
    """An index on a server, with the hashes of its documents."""

    def __init__(self, server: ElasticsearchServer, index: str, documents: list[str]) -> None:
        self.server = server
        self.index = index
        self.documents = documents

    def save(self, folder: Path) -> None:
        """Write the index's name and the document hashes."""
        (folder / FILE).write_text(json.dumps({"index": self.index, "documents": len(self.documents)}))
        hashes.write(folder, self.documents)


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
            raise make_refusal(folder, f"{index} holds {found} documents on the server, and {documents} were built")

    def point(self, folder: Path, corpus: int) -> None:
        """Let the corpus's alias name the index in `folder`."""
        self._server.point(f"{self._server.prefix}-{self.kind}-corpus-{corpus}", _read_reference(folder)[0])

    def _open_index(self, folder: Path) -> ServerIndex:
        """Return the name on the server and the document hashes of the index to which `folder` refers."""
        return ServerIndex(self._server, _read_reference(folder)[0], hashes.read(folder))

    def _build_index(
        self, signature: str, batches: Iterable[Batch], fields: Callable[[Sequence[str]], Iterable[Fields]],
        *, settings: Fields, properties: Fields,
    ) -> ServerIndex:  # fmt: skip
        """Build an index of all documents, all or nothing; `fields` makes the fields of a batch's texts.

        Raises:
            Invalid: there is no document, or the server never takes one, or an index of these parameters.
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
            order = hashes.sort_positions(documents)
        except BaseException:
            with suppress(MathragError):
                self._server.discard(index)
            raise
        return ServerIndex(self._server, index, [documents[at] for at in order])


def _read_reference(folder: Path) -> tuple[str, int]:
    found = json.loads((folder / FILE).read_text())
    return found["index"], found["documents"]
