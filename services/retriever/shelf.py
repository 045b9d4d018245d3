"""The indexes and documents that the process has at hand."""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import anyio
from anyio import to_thread
from sqlalchemy import text

from services.retriever import builds, files
from services.retriever.ports import Backend, Index
from shared.storage.database import Database

INDEXES = 8
"""Loaded at once; the one used least recently goes."""
PROBLEMS = 100_000


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
        if index not in self._indexes:
            async with self._loading:
                await self._admit(index)
        self._indexes.move_to_end(index)
        return self._indexes[index]

    async def _admit(self, index: int) -> None:
        """Load the index unless whoever held the lock before did; searches of the others go on meanwhile."""
        if index in self._indexes:
            return
        loaded = await self._load(index)
        while len(self._indexes) >= INDEXES:
            self._indexes.popitem(last=False)
        self._indexes[index] = loaded

    async def _load(self, index: int) -> Index:
        row = await builds.stored(self._database, index)
        backend = self._backends[row.kind]
        folder = self._data_dir / row.path
        made = await to_thread.run_sync(builds.recipe, backend, row.corpus)
        await to_thread.run_sync(files.verify, folder, made, row.file_hash)
        await to_thread.run_sync(backend.check, folder)
        return await to_thread.run_sync(backend.load, folder)


class Problems:
    """The problem of each document, which duplicates are found by; documents never change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, str] = {}

    async def of(self, documents: Iterable[str]) -> dict[str, str]:
        """Document hash -> problem, for every document that exists."""
        wanted = set(documents)
        if len(self._known) > PROBLEMS:
            self._known.clear()
        # Not by a set operation with the keys, which would walk all that is known.
        missing = [bytes.fromhex(document) for document in wanted if document not in self._known]
        if missing:
            query = text("SELECT hash, problem FROM documents WHERE hash = ANY(:hashes)")
            async with self._database.transaction() as connection:
                rows = await connection.execute(query, {"hashes": missing})
                self._known |= {row.hash.hex(): row.problem for row in rows}
        return {document: self._known[document] for document in wanted if document in self._known}
