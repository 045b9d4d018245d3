"""Builds of indexes: their queue, their texts, and the caches of finished ones and of documents."""

import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import CancelScope, from_thread, to_thread
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, NotFound
from services.retriever.index import (
    REBUILD,
    Backend,
    Batch,
    SearchIndex,
    UnsoundIndex,
    find_free_memory,
    require_memory,
    return_freed_memory,
    verify,
    write_index,
)
from shared import canonical
from shared.rag.duplicates import ComparedDocument
from shared.recent import LruCache
from shared.replies import Document
from shared.storage.corpora import IndexProgress
from shared.storage.database import Database

# Order the builds of indexes, so that a small corpus does not wait for a large one.

AT_ONCE = 2
"""Builds at once. At most one of them is large, and the other place is for small ones."""
SMALL_BYTES = 8 << 20
"""Largest text of a small build, in bytes: some 15 seconds on a core with the shipped embedder."""
BYTES_PER_S = 1 << 19
"""Text that a core indexes in a second, about: a build can be overtaken only for as long as it takes itself."""


@dataclass(eq=False)
class Turn:
    """A build that waits or runs."""

    signature: str
    size: int
    due: float
    """Waiting builds start in this order: of arrival, each put back by the time that its text may take."""
    corpus: int
    kind: str
    documents: int = 0
    """Number of documents indexed so far."""
    started: anyio.Event = field(default_factory=anyio.Event)


class BuildQueue:
    """Starts waiting builds, small ones first, and no two of the same index at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []

    @property
    def signatures(self) -> set[str]:
        """Signatures of the indexes that are being built now."""
        return {turn.signature for turn in self._running}

    def list_builds(self, corpus: int) -> list[IndexProgress]:
        """List the builds for a corpus that run or wait."""
        running = [
            IndexProgress(kind=turn.kind, documents=turn.documents) for turn in self._running if turn.corpus == corpus
        ]
        waiting = [IndexProgress(kind=turn.kind, documents=None) for turn in self._waiting if turn.corpus == corpus]
        return running + waiting

    @asynccontextmanager
    async def take_turn(self, signature: str, size: int, corpus: int = 0, kind: str = "") -> AsyncIterator[Turn]:
        """Wait until an index may be built or deleted, and hold the place for the length of the block.

        Args:
            signature: the index's signature.
            size: length of the corpus's texts in bytes.
            corpus: corpora.id; 0 if the index is deleted.
            kind: the index's kind.
        """
        turn = Turn(signature, size, self._clock() + size / BYTES_PER_S, corpus, kind)
        self._waiting.append(turn)
        try:
            self._start_waiting()
            await turn.started.wait()
            yield turn
        finally:  # a request that is cancelled while it waits ends here as well
            (self._running if turn in self._running else self._waiting).remove(turn)
            self._start_waiting()

    def _start_waiting(self) -> None:
        for turn in sorted(self._waiting, key=lambda each: each.due):
            if len(self._running) >= AT_ONCE or turn.signature in self.signatures:
                continue
            if turn.size <= SMALL_BYTES or all(each.size <= SMALL_BYTES for each in self._running):
                self._waiting.remove(turn)
                self._running.append(turn)
                turn.started.set()


# Build the indexes of a corpus from the documents in the database.
#
# An index is determined by its recipe and the corpus's content, so no signature is built twice.

VERSION = "1"
"""Version of the code that determines scores; a new version makes new indexes."""
FIELDS = r"problem \n text"
"""The fields that are indexed, as every index's signature has them."""
FOLDER = "indexes"
BATCH = 1000
BATCH_BYTES = 4 << 20
"""Documents per batch, and the length of their texts, in bytes, at which a batch ends: a build that is cancelled ends
after the present batch."""
_CORPUS = text("""
    SELECT id, hash, CASE bytes WHEN 0 THEN 1000 * CAST(documents AS bigint) ELSE bytes END AS bytes
    FROM corpora WHERE id = :id""")
"""Corpora of releases that did not count their bytes have 0; each of their documents counts as 1,000."""
_POINTERS = {
    "dense": text("UPDATE corpora SET dense_index = :index WHERE id = :id AND hash = :hash"),
    "sparse": text("UPDATE corpora SET sparse_index = :index WHERE id = :id AND hash = :hash"),
}


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """Tells which index a corpus now uses, and whether it was built for it."""

    index: int
    """indexes.id"""
    kind: str
    signature: str
    documents: int
    reused: bool
    """Whether an existing, undamaged index was used."""
    seconds: float


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table `indexes` whose state is `ready`."""

    id: int
    kind: str
    corpus: str
    """Hash of the corpus, in hex, as the recipe has it."""
    path: str
    file_hash: bytes
    documents: int


def make_recipe(backend: Backend[SearchIndex], corpus_hash: str) -> dict[str, Any]:
    """Return everything that determines an index; its canonical digest is the index's signature."""
    return {"kind": backend.kind, "version": VERSION, "text": FIELDS, "corpus": corpus_hash, **backend.recipe()}


def make_indexed_text(problem: str, text: str) -> str:
    """Join problem and text on separate lines; a plain passage has no problem."""
    return Document(problem=problem, text=text).whole


async def build_corpus(
    database: Database, data_dir: Path, backends: list[Backend[SearchIndex]], queue: BuildQueue, corpus: int
) -> list[Build]:
    """Build the missing or damaged indexes, one per back end, and let the corpus use all of them.

    A caller that is cancelled leaves nothing of an unfinished index.

    Raises:
        NotFound: the corpus does not exist.
        Invalid: the corpus is empty.
        Conflict: the corpus was deleted or replaced in the meantime.
    """
    async with database.transaction() as connection:
        found = (await connection.execute(_CORPUS, {"id": corpus})).one_or_none()
    if found is None:
        raise NotFound(f"corpus {corpus} does not exist", hint="list the corpora, or upload one")
    return [await _build(database, data_dir, backend, queue, found) for backend in backends]


async def _build(
    database: Database, data_dir: Path, backend: Backend[SearchIndex], queue: BuildQueue, corpus: Row[Any]
) -> Build:
    started = time.monotonic()
    made = await to_thread.run_sync(make_recipe, backend, corpus.hash.hex())  # the embedder may be asked for it
    signature = canonical.digest(made)
    row, reused = await _find_reusable(database, data_dir, backend, made), True
    if row is None:
        async with queue.take_turn(signature.hex(), corpus.bytes, corpus.id, backend.kind) as turn:
            # Another request may have built it while this one waited.
            row = await _find_reusable(database, data_dir, backend, made)
            if row is None:
                row, reused = await make_index(database, data_dir, backend, made, turn), False
    async with database.transaction() as connection:
        result = await connection.execute(
            _POINTERS[backend.kind], {"index": row.id, "id": corpus.id, "hash": corpus.hash}
        )
    if result.rowcount == 0:
        raise Conflict(f"Corpus {corpus.id} was deleted or replaced while it was being indexed", hint="Build it again")
    await to_thread.run_sync(backend.point, data_dir / row.path, corpus.id)
    return Build(
        index=row.id,
        kind=backend.kind,
        signature=signature.hex(),
        documents=row.documents,
        reused=reused,
        seconds=round(time.monotonic() - started, 3),
    )


async def _find_reusable(
    database: Database, data_dir: Path, backend: Backend[SearchIndex], made: dict[str, Any]
) -> IndexRow | None:
    """Find the index of this recipe; None if it does not exist, or it is damaged."""
    found = await _query_index(database, signature=canonical.digest(made))
    if found is None:
        return None
    try:
        await to_thread.run_sync(verify, data_dir / found.path, made, found.file_hash)
        await to_thread.run_sync(backend.check, data_dir / found.path)
    except UnsoundIndex:
        return None
    return found


async def make_index(
    database: Database, data_dir: Path, backend: Backend[SearchIndex], made: dict[str, Any], turn: Turn
) -> IndexRow:
    """Build an index in a worker thread, which reads batches through this loop, and register it."""
    batches = _read_batches(database, turn)

    def work() -> tuple[Path, bytes, int]:
        index = backend.build(_iterate_blocking(batches), canonical.digest(made).hex())
        from_thread.check_cancelled()
        return *write_index(data_dir / FOLDER, made, index), len(index.documents)

    folder, file_hash, documents = await to_thread.run_sync(work)
    await to_thread.run_sync(return_freed_memory)
    statement = text(
        "INSERT INTO indexes (kind, signature, model_id, path, file_hash, params, documents, state)"
        " VALUES (:kind, :signature, :model, :path, :file_hash, CAST(:params AS jsonb), :documents, 'ready')"
        " ON CONFLICT (signature) DO UPDATE SET path = excluded.path, file_hash = excluded.file_hash, state = 'ready'"
        " RETURNING id"
    )
    path, signature, kind = f"{FOLDER}/{folder.name}", canonical.digest(made), made["kind"]
    values = {
        "kind": kind, "signature": signature, "path": path, "file_hash": file_hash, "documents": documents,
        "params": canonical.encode(made).decode(),
    }  # fmt: skip
    with CancelScope(shield=True):  # also if the caller is cancelled, so that the written index is used
        async with database.transaction() as connection:
            model = await _register_model(connection, kind, signature.hex())
            index = int(await connection.scalar(statement, {**values, "model": model}))
    return IndexRow(id=index, kind=kind, corpus=made["corpus"], path=path, file_hash=file_hash, documents=documents)


async def _read_batches(database: Database, turn: Turn) -> AsyncIterator[Batch]:
    """Yield every distinct document once, in short transactions, so that a long build does not hold back vacuum.

    A batch counts as indexed when the next one is asked for.
    """
    query = text(
        "SELECT ordinal, hash, problem, body FROM ("
        " SELECT c.ordinal, c.hash, d.problem, d.body, sum(octet_length(d.problem) + octet_length(d.body))"
        " OVER (ORDER BY c.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before"
        " FROM corpus_documents c JOIN documents d USING (hash)"
        " WHERE c.corpus_id = :corpus AND c.ordinal > :after ORDER BY c.ordinal LIMIT :batch"
        ") AS next WHERE coalesce(bytes_before, 0) < :bytes ORDER BY ordinal"
    )
    after, seen = -1, set[bytes]()
    while True:
        turn.documents = after + 1
        values = {"corpus": turn.corpus, "after": after, "batch": BATCH, "bytes": BATCH_BYTES}
        async with database.transaction() as connection:
            rows = (await connection.execute(query, values)).all()
        if not rows:
            return
        after = rows[-1].ordinal
        fresh = {row.hash: row for row in rows if row.hash not in seen}
        seen.update(fresh)  # `|=` with keys would copy the set
        yield [(document.hex(), make_indexed_text(row.problem, row.body)) for document, row in fresh.items()]


def _iterate_blocking(batches: AsyncIterator[Batch]) -> Iterator[Batch]:
    """Iterate over the batches from a worker thread, until the task that waits for it is cancelled."""

    async def read_next() -> Batch | None:
        return await anext(batches, None)

    while True:
        from_thread.check_cancelled()
        try:
            batch = from_thread.run(read_next)
        except CancelledError:
            from_thread.check_cancelled()  # raises the exception by which the waiting task knows that it is cancelled
            raise
        if batch is None:
            return
        yield batch


async def _query_index(
    database: Database, *, index: int | None = None, signature: bytes | None = None
) -> IndexRow | None:
    query = text(
        "SELECT id, kind, params->>'corpus' AS corpus, path, file_hash, documents FROM indexes WHERE state = 'ready'"
        " AND (id = CAST(:index AS integer) OR signature = CAST(:signature AS bytea))"
    )
    async with database.transaction() as connection:
        row = (await connection.execute(query, {"index": index, "signature": signature})).mappings().first()
    return None if row is None else IndexRow(**row)


async def _register_model(connection: AsyncConnection, kind: str, digest: str) -> int:
    """Insert the row of `models` to which retrieve calls of this index are pinned, and return its id."""
    key = {"hash": canonical.digest(["retriever", digest, VERSION, {}])}
    statement = text(
        "INSERT INTO models (name, backend, digest, version, options, hash, needs_lease)"
        " VALUES (:name, 'retriever', :digest, :version, '{}', :hash, false) ON CONFLICT (hash) DO NOTHING"
    )
    await connection.execute(statement, {"name": kind, "digest": digest, "version": VERSION, **key})
    return int(await connection.scalar(text("SELECT id FROM models WHERE hash = :hash"), key))


# Caches of loaded indexes and of documents.

INDEXES = 8
"""Indexes that are loaded at once; the least recently used one is evicted."""
IDLE_S = 300
"""Seconds without a search after which an index makes room for one that does not fit into memory besides it. If it did
so sooner, two indexes that are searched in turn would be loaded again for each search."""
DOCUMENTS_BYTES = 64 << 20
"""Memory of the cached documents; MATH's 7,500 training problems take about 8 MB."""
ENTRY_BYTES = 512
"""Approximate overhead of the cache per document: the hash, its entry, the links, the problem's marks."""
DOCUMENTS = text(
    "SELECT hash, problem, CASE WHEN problem = '' THEN '' ELSE body END AS body FROM documents"
    " WHERE hash = ANY(:hashes)"
)
"""A passage without a problem is never a near-duplicate, so that its text is not needed."""


class IndexCache:
    """Loads indexes at their first search; they are immutable, so loaded ones stay valid."""

    def __init__(self, database: Database, data_dir: Path, backends: list[Backend[SearchIndex]]) -> None:
        self._database = database
        self._data_dir = data_dir
        self._backends = {backend.kind: backend for backend in backends}
        self._indexes: dict[int, SearchIndex] = {}
        self._used: OrderedDict[int, float] = OrderedDict()
        """When each of them was last searched (monotonic seconds), the longest ago first."""
        self._loading = anyio.Lock()

    @property
    def loaded(self) -> list[int]:
        """Ids of the indexes in memory."""
        return sorted(self._indexes)

    async def index(self, index: int) -> SearchIndex:
        """Return the index with this id, loading it if need be.

        Raises:
            NotFound: it does not exist.
            Unavailable: its files are missing or changed, this code would build it otherwise, or memory is short.
        """
        if (loaded := self._use_loaded(index)) is not None:
            return loaded
        async with self._loading:  # searches of other indexes continue in the meantime
            loaded = self._use_loaded(index)  # an earlier holder of the lock may have loaded it
            if loaded is None:
                self._indexes[index] = loaded = await self._load(index)
                self._use_loaded(index)
            return loaded

    def _use_loaded(self, index: int) -> SearchIndex | None:
        """Return the index if it is loaded, and mark it as used."""
        if index in self._indexes:
            self._used[index] = time.monotonic()
            self._used.move_to_end(index)
        return self._indexes.get(index)

    async def _load(self, index: int) -> SearchIndex:
        row = await _query_index(self._database, index=index)
        if row is None:
            raise NotFound(f"index {index} does not exist", hint=REBUILD)
        backend = self._backends[row.kind]
        folder = self._data_dir / row.path
        # An index takes more than its files. `verify` refuses a missing folder.
        size = sum(file.stat().st_size for file in folder.glob("*"))
        for oldest, used in list(self._used.items()):
            idle = time.monotonic() - used >= IDLE_S
            if len(self._used) >= INDEXES or (idle and size > find_free_memory()):
                del self._indexes[oldest], self._used[oldest]
        require_memory(size, f"the {row.kind} index {index} of {row.documents} documents")
        made = await to_thread.run_sync(make_recipe, backend, row.corpus)
        await to_thread.run_sync(verify, folder, made, row.file_hash)
        await to_thread.run_sync(backend.check, folder)
        return await to_thread.run_sync(backend.load, folder)


class DocumentCache:
    """Caches problem and text of documents, by which near-duplicates are found; documents never change."""

    def __init__(self, database: Database, most_bytes: int = DOCUMENTS_BYTES) -> None:
        self._database = database
        # The characters of a document take 1 to 4 bytes each.
        self._recent: LruCache[ComparedDocument] = LruCache(
            most_bytes,
            lambda each: ENTRY_BYTES + sys.getsizeof(each.document.problem) + sys.getsizeof(each.document.text),
        )

    async def of(self, documents: Iterable[str]) -> dict[str, ComparedDocument]:
        """Return the existing documents by hash.

        A missing document could not be recognised as a near-duplicate, and the answer would leak. So the caller keeps
        the documents found, and does not read from the shared cache again.
        """
        wanted = set(documents)
        found = self._recent.find(wanted)
        if missing := [bytes.fromhex(document) for document in wanted - found.keys()]:
            async with self._database.transaction() as connection:
                rows = await connection.execute(DOCUMENTS, {"hashes": missing})
                found |= {
                    row.hash.hex(): ComparedDocument(Document(problem=row.problem, text=row.body)) for row in rows
                }
            self._recent.keep(found)
        return found
