"""The indexes and documents that the process has at hand."""

import sys
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import anyio
from anyio import to_thread
from sqlalchemy import text

from services.retriever import builds, files
from services.retriever.ports import Backend, Index
from shared.contracts.documents import Document
from shared.recent import Recent
from shared.storage.database import Database

INDEXES = 8
"""Loaded at once; the one used least recently goes."""
DOCUMENTS_BYTES = 64 << 20
"""Memory of the documents that are kept; MATH's 7,500 for training take about 8 MB."""
ENTRY_BYTES = 256
"""About what the cache adds to each: the hash, its entry, the links."""
DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")


class Shelf:
    """Loads indexes when they are first searched; an index is immutable, so what is loaded stays right."""

    def __init__(self, database: Database, data_dir: Path, backends: list[Backend[Index]]) -> None:
        self._database = database
        self._data_dir = data_dir
        self._backends = {backend.kind: backend for backend in backends}
        self._indexes: OrderedDict[int, Index] = OrderedDict()
        self._loading = anyio.Lock()

    @property
    def loaded(self) -> list[int]:
        """Ids of the indexes in memory."""
        return sorted(self._indexes)

    async def index(self, index: int) -> Index:
        """The index with this id.

        Raises:
            NotFound: there is none.
            Unavailable: its files are missing or changed, or this code would build it otherwise.
        """
        if (loaded := self._used(index)) is not None:
            return loaded
        async with self._loading:
            loaded = self._used(index)  # whoever held the lock before may have loaded it
            return await self._admit(index) if loaded is None else loaded

    def _used(self, index: int) -> Index | None:
        """The index, where it is loaded; it counts as used now."""
        if index in self._indexes:
            self._indexes.move_to_end(index)
        return self._indexes.get(index)

    async def _admit(self, index: int) -> Index:
        """Load an index, in the place of the one used least recently; searches of the others go on meanwhile."""
        loaded = await self._load(index)
        while len(self._indexes) >= INDEXES:
            self._indexes.popitem(last=False)
        self._indexes[index] = loaded
        return loaded

    async def _load(self, index: int) -> Index:
        row = await builds.stored(self._database, index)
        backend = self._backends[row.kind]
        folder = self._data_dir / row.path
        made = await to_thread.run_sync(builds.recipe, backend, row.corpus)
        await to_thread.run_sync(files.verify, folder, made, row.file_hash)
        await to_thread.run_sync(backend.check, folder)
        return await to_thread.run_sync(backend.load, folder)


class Documents:
    """Problem and text of each document, which near-duplicates are found by; documents never change."""

    def __init__(self, database: Database, most_bytes: int = DOCUMENTS_BYTES) -> None:
        self._database = database
        self._recent: Recent[Document] = Recent(most_bytes, _bytes)

    async def of(self, documents: Iterable[str]) -> dict[str, Document]:
        """The documents by hash, as far as they exist.

        One that is missing here makes its document look like no near-duplicate, and the answer leaks: what was
        found is held by the caller, and never read from the shared cache again after the query.
        """
        wanted = set(documents)
        found = self._recent.find(wanted)
        if missing := [bytes.fromhex(document) for document in wanted - found.keys()]:
            async with self._database.transaction() as connection:
                rows = await connection.execute(DOCUMENTS, {"hashes": missing})
                found |= {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}
            self._recent.keep(found)
        return found


def _bytes(document: Document) -> int:
    """About what it takes in memory: a character takes 1 to 4 bytes."""
    return ENTRY_BYTES + sys.getsizeof(document.problem) + sys.getsizeof(document.text)
