"""Build the indexes of a corpus from the documents in the database.

An index is determined by its recipe and the corpus's content, so no signature is built twice.
"""

import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import msgspec
from anyio import CancelScope, from_thread, to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.retriever import files
from services.retriever.build_queue import BuildQueue
from services.retriever.ports import Backend, Batch, SearchIndex
from services.retriever.texts import FIELDS, make_indexed_text
from shared import canonical
from shared.errors import Conflict, NotFound
from shared.storage.database import Database

VERSION = "1"
"""Version of the code that determines scores; a new version makes new indexes."""
FOLDER = "indexes"
BATCH = 1000
BATCH_BYTES = 4 << 20
"""Documents per batch, and the length of their texts, in bytes, at which a batch ends: a build that is cancelled ends
after the present batch."""
_POINTERS = {
    "dense": text("UPDATE corpora SET dense_index = :index WHERE id = :id AND hash = :hash"),
    "sparse": text("UPDATE corpora SET sparse_index = :index WHERE id = :id AND hash = :hash"),
}


class CorpusRow(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the columns of `corpora` that a build needs."""

    id: int
    hash: bytes


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


async def build_corpus(
    database: Database, data_dir: Path, backends: list[Backend[SearchIndex]], queue: BuildQueue, corpus: int
) -> list[Build]:
    """Build the missing or damaged indexes, one per back end, and let the corpus use all of them.

    A caller that is cancelled leaves nothing of an unfinished index.

    Raises:
        NotFound: there is no such corpus.
        Invalid: the corpus is empty.
        Conflict: the corpus was deleted or replaced meanwhile.
    """
    row = await _find_corpus(database, corpus)
    return [await _build(database, data_dir, backend, queue, row) for backend in backends]


async def find_index(database: Database, index: int) -> IndexRow:
    """Find the ready index with this id.

    Raises:
        NotFound: there is none.
    """
    found = await _query_index(database, index=index)
    if found is None:
        raise NotFound(f"there is no index {index}", hint=files.REBUILD)
    return found


async def _build(
    database: Database, data_dir: Path, backend: Backend[SearchIndex], queue: BuildQueue, corpus: CorpusRow
) -> Build:
    started = time.monotonic()
    made = await to_thread.run_sync(make_recipe, backend, corpus.hash.hex())  # the embedder may be asked for it
    signature = canonical.digest(made)
    row, reused = await _find_reusable(database, data_dir, backend, made, signature), True
    if row is None:
        async with queue.take_turn(signature.hex(), await _measure_text(database, corpus.id)):
            # Another request may have built it while this one waited.
            row = await _find_reusable(database, data_dir, backend, made, signature)
            if row is None:
                row, reused = await _make(database, data_dir, backend, made, corpus), False
    await _point_corpus(database, corpus, backend.kind, row.id)
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
    database: Database, data_dir: Path, backend: Backend[SearchIndex], made: dict[str, Any], signature: bytes
) -> IndexRow | None:
    """Find the index of this signature; None if there is none, or it is damaged.

    Raises:
        Unavailable: its server does not answer.
    """
    found = await _query_index(database, signature=signature)
    if found is None:
        return None
    try:
        await to_thread.run_sync(files.verify, data_dir / found.path, made, found.file_hash)
        await to_thread.run_sync(backend.check, data_dir / found.path)
    except files.UnsoundIndex:
        return None
    return found


async def _make(
    database: Database, data_dir: Path, backend: Backend[SearchIndex], made: dict[str, Any], corpus: CorpusRow
) -> IndexRow:
    """Build an index in a worker thread, which reads batches through this loop, and register it."""
    batches = _read_batches(database, corpus.id)

    def work() -> tuple[Path, bytes, int]:
        index = backend.build(_iterate_blocking(batches), canonical.digest(made).hex())
        from_thread.check_cancelled()
        return *files.write(data_dir / FOLDER, made, index), len(index.documents)

    folder, file_hash, documents = await to_thread.run_sync(work)
    return await _register(database, made, f"{FOLDER}/{folder.name}", file_hash, documents)


async def _measure_text(database: Database, corpus: int) -> int:
    """Return the length of the corpus's texts, in bytes."""
    query = text(
        "SELECT coalesce(sum(octet_length(problem) + octet_length(body)), 0) FROM documents"
        " WHERE hash IN (SELECT hash FROM corpus_documents WHERE corpus_id = :corpus)"
    )
    async with database.transaction() as connection:
        return int((await connection.execute(query, {"corpus": corpus})).scalar_one())


async def _read_batches(database: Database, corpus: int) -> AsyncIterator[Batch]:
    """Yield every distinct document once, in short transactions, so that a long build does not hold back vacuum."""
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
        values = {"corpus": corpus, "after": after, "batch": BATCH, "bytes": BATCH_BYTES}
        async with database.transaction() as connection:
            rows = (await connection.execute(query, values)).all()
        if not rows:
            return
        after = rows[-1].ordinal
        fresh = {row.hash: row for row in rows if row.hash not in seen}
        seen |= fresh.keys()
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


async def _find_corpus(database: Database, corpus: int) -> CorpusRow:
    async with database.transaction() as connection:
        row = (await connection.execute(text("SELECT id, hash FROM corpora WHERE id = :id"), {"id": corpus})).first()
    if row is None:
        raise NotFound(f"there is no corpus {corpus}", hint="list the corpora, or upload one")
    return CorpusRow(id=row.id, hash=row.hash)


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


async def _register(database: Database, made: dict[str, Any], path: str, file_hash: bytes, documents: int) -> IndexRow:
    """Insert or update the row of an index, also if the caller is cancelled, so that what is written is used."""
    statement = text(
        "INSERT INTO indexes (kind, signature, model_id, path, file_hash, params, documents, state)"
        " VALUES (:kind, :signature, :model, :path, :file_hash, CAST(:params AS jsonb), :documents, 'ready')"
        " ON CONFLICT (signature) DO UPDATE SET path = excluded.path, file_hash = excluded.file_hash, state = 'ready'"
        " RETURNING id"
    )
    signature, kind = canonical.digest(made), made["kind"]
    values = {
        "kind": kind, "signature": signature, "path": path, "file_hash": file_hash, "documents": documents,
        "params": canonical.encode(made).decode(),
    }  # fmt: skip
    with CancelScope(shield=True):
        async with database.transaction() as connection:
            model = await _register_model(connection, kind, signature.hex())
            index = int((await connection.execute(statement, {**values, "model": model})).scalar_one())
    return IndexRow(id=index, kind=kind, corpus=made["corpus"], path=path, file_hash=file_hash, documents=documents)


async def _register_model(connection: AsyncConnection, kind: str, digest: str) -> int:
    """Insert the row of `models` to which retrieve calls of this index are pinned, and return its id."""
    options: dict[str, Any] = {}
    key = {"hash": canonical.digest(["retriever", digest, VERSION, options])}
    statement = text(
        "INSERT INTO models (name, backend, digest, version, options, hash, needs_lease)"
        " VALUES (:name, 'retriever', :digest, :version, '{}', :hash, false) ON CONFLICT (hash) DO NOTHING"
    )
    await connection.execute(statement, {"name": kind, "digest": digest, "version": VERSION, **key})
    return int((await connection.execute(text("SELECT id FROM models WHERE hash = :hash"), key)).scalar_one())


async def _point_corpus(database: Database, corpus: CorpusRow, kind: str, index: int) -> None:
    async with database.transaction() as connection:
        result = await connection.execute(_POINTERS[kind], {"index": index, "id": corpus.id, "hash": corpus.hash})
    if result.rowcount == 0:
        raise Conflict(f"Corpus {corpus.id} was deleted or replaced while it was indexed", hint="Build it again")
