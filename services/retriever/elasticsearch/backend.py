"""Indexes that lie on a server: one physical index per build, named by its signature; its folder only names it.

A build never writes into an index that is searched, but for the repair of one that was found damaged. The alias
PREFIX-KIND-corpus-ID names the build that a corpus uses now; searches go to the physical one, so that an old job's
replies stay explained.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from services.retriever import hashes
from services.retriever.elasticsearch.server import Server
from services.retriever.files import refusal
from services.retriever.ports import Batch
from shared.errors import MathragError

FILE = "elasticsearch.json"
SETTINGS: Mapping[str, Any] = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
"""One shard, so that BM25 counts over all documents; no copies, as it can be built again; never refreshed by itself."""
HASH: Mapping[str, Any] = {"type": "keyword"}

Fields = Mapping[str, Any]


class Place:
    """Where an index lies, and what is in it."""

    def __init__(self, server: Server, index: str, documents: list[str]) -> None:
        self.server = server
        self.index = index
        self.documents = documents

    def save(self, folder: Path) -> None:
        """Write the name and the document hashes."""
        (folder / FILE).write_text(json.dumps({"index": self.index, "documents": len(self.documents)}))
        hashes.write(folder, self.documents)


class Served:
    """Half of a `Backend` whose indexes lie on a server."""

    kind = ""

    def __init__(self, server: Server) -> None:
        self._server = server

    def check(self, folder: Path) -> None:
        """Whether the server still holds what `folder` names.

        Raises:
            Unsound: the index is gone, or holds another number of documents.
            Unavailable: the server does not answer.
        """
        index, documents = _named(folder)
        found = self._server.count(index)
        if found != documents:
            raise refusal(folder, f"{index} holds {found} documents on the server, and {documents} were built")

    def point(self, folder: Path, corpus: int) -> None:
        """Let the corpus's alias name the index in `folder`."""
        self._server.point(f"{self._server.prefix}-{self.kind}-corpus-{corpus}", _named(folder)[0])

    def _placed(self, folder: Path) -> Place:
        """Where the index lies that was saved in `folder`."""
        return Place(self._server, _named(folder)[0], hashes.read(folder))

    def _made(
        self, signature: str, batches: Iterable[Batch], fields: Callable[[Sequence[str]], Iterable[Fields]],
        *, settings: Fields, properties: Fields,
    ) -> Place:  # fmt: skip
        """A new index of all documents, all or nothing; `fields` makes those of a batch's texts.

        Raises:
            Invalid: there is no document, or the server never takes one, or an index of these parameters.
            Unavailable: it takes them not now.
        """
        index = f"{self._server.prefix}-{self.kind}-{signature}"
        documents: list[str] = []

        def written() -> Iterator[tuple[str, Fields]]:
            for batch in batches:
                documents.extend(document for document, _ in batch)
                for (document, _), each in zip(batch, fields([text for _, text in batch]), strict=True):
                    yield document, {"hash": document, **each}

        mappings = {"dynamic": "strict", "_source": {"enabled": False}, "properties": {"hash": HASH, **properties}}
        try:
            self._server.create(index, settings={**SETTINGS, **settings}, mappings=mappings)
            self._server.fill(index, written())
            order = hashes.ascending(documents)
        except BaseException:
            with suppress(MathragError):
                self._server.discard(index)
            raise
        return Place(self._server, index, [documents[at] for at in order])


def _named(folder: Path) -> tuple[str, int]:
    found = json.loads((folder / FILE).read_text())
    return found["index"], found["documents"]
