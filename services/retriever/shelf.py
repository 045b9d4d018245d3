"""Caches of loaded indexes and of documents."""

import sys
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import anyio
from anyio import to_thread
from sqlalchemy import text

from services.retriever import builds, files
from services.retriever.ports import Backend, SearchIndex
from shared.recent import LruCache
from shared.replies import Document
from shared.storage.database import Database

INDEXES = 8
"""Indexes that are loaded at once; the least recently used one is evicted."""
DOCUMENTS_BYTES = 64 << 20
"""Memory of the cached documents; MATH's 7,500 training problems take about 8 MB."""
ENTRY_BYTES = 256
"""Approximate overhead of the cache per document: the hash, its entry, the links."""
DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")


class IndexCache:
    """Loads indexes at their first search; they are immutable, so loaded ones stay valid."""

    def __init__(self, database: Database, data_dir: Path, backends: list[Backend[SearchIndex]]) -> None:
        self._database = database
        self._data_dir = data_dir
        self._backends = {backend.kind: backend for backend in backends}
        self._indexes: OrderedDict[int, SearchIndex] = OrderedDict()
        self._loading = anyio.Lock()

    @property
    def loaded(self) -> list[int]:
        """Ids of the indexes in memory."""
        return sorted(self._indexes)

    async def index(self, index: int) -> SearchIndex:
        """Return the index with this id, loading it if need be.

        Raises:
            NotFound: there is none.
            Unavailable: its files are missing or changed, or this code would build it otherwise.
        """
        if (loaded := self._use_loaded(index)) is not None:
            return loaded
        async with self._loading:
            loaded = self._use_loaded(index)  # whoever held the lock before may have loaded it
            return await self._admit(index) if loaded is None else loaded

    def _use_loaded(self, index: int) -> SearchIndex | None:
        """Return the index if it is loaded, and mark it as used."""
        if index in self._indexes:
            self._indexes.move_to_end(index)
        return self._indexes.get(index)

    async def _admit(self, index: int) -> SearchIndex:
        """Load an index and evict the least recently used one; searches of other indexes go on meanwhile."""
        loaded = await self._load(index)
        while len(self._indexes) >= INDEXES:
            self._indexes.popitem(last=False)
        self._indexes[index] = loaded
        return loaded

    async def _load(self, index: int) -> SearchIndex:
        row = await builds.find_index(self._database, index)
        backend = self._backends[row.kind]
        folder = self._data_dir / row.path
        made = await to_thread.run_sync(builds.make_recipe, backend, row.corpus)
        await to_thread.run_sync(files.verify, folder, made, row.file_hash)
        await to_thread.run_sync(backend.check, folder)
        return await to_thread.run_sync(backend.load, folder)


class DocumentCache:
    """Caches problem and text of documents, by which near-duplicates are found; documents never change."""

    def __init__(self, database: Database, most_bytes: int = DOCUMENTS_BYTES) -> None:
        self._database = database
        self._recent: LruCache[Document] = LruCache(most_bytes, _estimate_bytes)

    async def of(self, documents: Iterable[str]) -> dict[str, Document]:
        """Return the existing documents by hash.

        A missing document could not be recognised as a near-duplicate, and the answer would leak. So the caller keeps
        what was found, and does not read from the shared cache again.
        """
        wanted = set(documents)
        found = self._recent.find(wanted)
        if missing := [bytes.fromhex(document) for document in wanted - found.keys()]:
            async with self._database.transaction() as connection:
                rows = await connection.execute(DOCUMENTS, {"hashes": missing})
                found |= {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}
            self._recent.keep(found)
        return found


def _estimate_bytes(document: Document) -> int:
    """Estimate the memory of a document, whose characters take 1 to 4 bytes each."""
    return ENTRY_BYTES + sys.getsizeof(document.problem) + sys.getsizeof(document.text)
