"""Building a corpus's indexes: documents stream out of the database, files and rows come into being once.

An index is determined by its recipe and the corpus's content, so the same signature is never built twice.
"""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from anyio import from_thread, to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.retriever import files
from services.retriever.ports import Backend, Batch, Index
from services.retriever.texts import FIELDS, indexed_text
from shared.contracts import canonical
from shared.errors import Conflict, NotFound
from shared.storage.database import Database

VERSION = "1"
"""Of this package's code as far as it determines scores; a new one makes new indexes."""
FOLDER = "indexes"
BATCH = 1000
_POINTERS = {
    "dense": text("UPDATE corpora SET dense_index = :index WHERE id = :id AND hash = :hash"),
    "sparse": text("UPDATE corpora SET sparse_index = :index WHERE id = :id AND hash = :hash"),
}


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `corpora`."""

    id: int
    hash: bytes


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """An index that a corpus now points to."""

    index: int
    """indexes.id"""
    kind: str
    signature: str
    documents: int
    reused: bool
    """It existed already and is sound."""
    seconds: float


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `indexes` that is ready."""

    id: int
    kind: str
    corpus: str
    """The corpus hash in its recipe, in hex."""
    path: str
    file_hash: bytes
    documents: int


def recipe(backend: Backend[Index], corpus_hash: str) -> dict[str, Any]:
    """Everything that determines an index; its canonical digest is the index's signature."""
    return {"kind": backend.kind, "version": VERSION, "text": FIELDS, "corpus": corpus_hash, **backend.recipe()}


async def build_corpus(database: Database, data_dir: Path, backends: list[Backend[Index]], corpus: int) -> list[Build]:
    """Build what is missing or damaged, one index per backend, and point the corpus to all of them.

    Raises:
        NotFound: no such corpus.
        Invalid: the corpus is empty.
        Conflict: the corpus was deleted or replaced meanwhile.
    """
    row = await _corpus(database, corpus)
    return [await _build(database, data_dir, backend, row) for backend in backends]


async def stored(database: Database, index: int) -> Stored:
    """The ready index with this id.

    Raises:
        NotFound: there is none.
    """
    found = await _stored(database, index=index)
    if found is None:
        raise NotFound(f"There is no index {index}", hint=files.REBUILD)
    return found


async def _build(database: Database, data_dir: Path, backend: Backend[Index], corpus: Corpus) -> Build:
    started = time.monotonic()
    made = await to_thread.run_sync(recipe, backend, corpus.hash.hex())  # the embedder may be asked for it
    signature = canonical.digest(made)
    reused = await _reusable(database, data_dir, backend, made, signature)
    if reused is None:
        folder, file_hash, documents = await _make(database, data_dir, backend, made, corpus)
        values = {"path": f"{FOLDER}/{folder.name}", "file_hash": file_hash, "documents": documents}
        index = await _register(database, made, signature, values)
    else:
        index, documents, folder = reused.id, reused.documents, data_dir / reused.path
    await _point(database, corpus, backend.kind, index)
    await to_thread.run_sync(backend.point, folder, corpus.id)
    return Build(
        index=index,
        kind=backend.kind,
        signature=signature.hex(),
        documents=documents,
        reused=reused is not None,
        seconds=round(time.monotonic() - started, 3),
    )


async def _reusable(
    database: Database, data_dir: Path, backend: Backend[Index], made: dict[str, Any], signature: bytes
) -> Stored | None:
    """The index of this signature, if it is sound.

    Raises:
        Unavailable: nobody can tell, as its server does not answer.
    """
    found = await _stored(database, signature=signature)
    if found is None:
        return None
    try:
        await to_thread.run_sync(files.verify, data_dir / found.path, made, found.file_hash)
        await to_thread.run_sync(backend.check, data_dir / found.path)
    except files.Unsound:
        return None
    return found


async def _make(
    database: Database, data_dir: Path, backend: Backend[Index], made: dict[str, Any], corpus: Corpus
) -> tuple[Path, bytes, int]:
    """Build and write in a worker thread, which asks this loop for each batch: (folder, file hash, documents)."""
    batches = _batches(database, corpus.id)

    def work() -> tuple[Path, bytes, int]:
        index = backend.build(_blocking(batches), canonical.digest(made).hex())
        return *files.write(data_dir / FOLDER, made, index), len(index.documents)

    return await to_thread.run_sync(work)


async def _batches(database: Database, corpus: int) -> AsyncIterator[Batch]:
    """Every distinct document once, in short transactions, so that a long build holds back no vacuum."""
    query = text(
        "SELECT c.ordinal, c.hash, d.problem, d.body FROM corpus_documents c JOIN documents d USING (hash)"
        " WHERE c.corpus_id = :corpus AND c.ordinal > :after ORDER BY c.ordinal LIMIT :batch"
    )
    after, seen = -1, set[bytes]()
    while True:
        async with database.transaction() as connection:
            rows = (await connection.execute(query, {"corpus": corpus, "after": after, "batch": BATCH})).all()
        if not rows:
            return
        after = rows[-1].ordinal
        fresh = {row.hash: row for row in rows if row.hash not in seen}
        seen |= fresh.keys()
        yield [(document.hex(), indexed_text(row.problem, row.body)) for document, row in fresh.items()]


def _blocking(batches: AsyncIterator[Batch]) -> Iterator[Batch]:
    """The same batches for a worker thread."""

    async def following() -> Batch | None:
        return await anext(batches, None)

    while (batch := from_thread.run(following)) is not None:
        yield batch


async def _corpus(database: Database, corpus: int) -> Corpus:
    async with database.transaction() as connection:
        row = (await connection.execute(text("SELECT id, hash FROM corpora WHERE id = :id"), {"id": corpus})).first()
    if row is None:
        raise NotFound(f"There is no corpus {corpus}", hint="List the corpora, or upload one")
    return Corpus(id=row.id, hash=row.hash)


async def _stored(database: Database, *, index: int | None = None, signature: bytes | None = None) -> Stored | None:
    query = text(
        "SELECT id, kind, params->>'corpus' AS corpus, path, file_hash, documents FROM indexes WHERE state = 'ready'"
        " AND (id = CAST(:index AS integer) OR signature = CAST(:signature AS bytea))"
    )
    async with database.transaction() as connection:
        row = (await connection.execute(query, {"index": index, "signature": signature})).mappings().first()
    return None if row is None else Stored(**row)


async def _register(database: Database, made: dict[str, Any], signature: bytes, values: dict[str, Any]) -> int:
    """The id of the index's row, which exists afterwards with these files."""
    statement = text(
        "INSERT INTO indexes (kind, signature, model_id, path, file_hash, params, documents, state)"
        " VALUES (:kind, :signature, :model, :path, :file_hash, CAST(:params AS jsonb), :documents, 'ready')"
        " ON CONFLICT (signature) DO UPDATE SET path = excluded.path, file_hash = excluded.file_hash, state = 'ready'"
        " RETURNING id"
    )
    async with database.transaction() as connection:
        model = await _model(connection, made["kind"], signature.hex())
        values = {**values, "kind": made["kind"], "signature": signature, "model": model}
        values["params"] = canonical.encode(made).decode()
        return int((await connection.execute(statement, values)).scalar_one())


async def _model(connection: AsyncConnection, kind: str, digest: str) -> int:
    """The id of the `models` row that retrieval calls are bound to: another index is another call."""
    options: dict[str, Any] = {}
    key = {"hash": canonical.digest(["retriever", digest, VERSION, options])}
    statement = text(
        "INSERT INTO models (name, backend, digest, version, options, hash, needs_lease)"
        " VALUES (:name, 'retriever', :digest, :version, '{}', :hash, false) ON CONFLICT (hash) DO NOTHING"
    )
    await connection.execute(statement, {"name": kind, "digest": digest, "version": VERSION, **key})
    return int((await connection.execute(text("SELECT id FROM models WHERE hash = :hash"), key)).scalar_one())


async def _point(database: Database, corpus: Corpus, kind: str, index: int) -> None:
    async with database.transaction() as connection:
        result = await connection.execute(_POINTERS[kind], {"index": index, "id": corpus.id, "hash": corpus.hash})
    if result.rowcount == 0:
        raise Conflict(f"Corpus {corpus.id} was deleted or replaced while it was indexed", hint="Build it again")
