"""Corpora: documents under a name, in order. Documents are content-addressed and never change."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, Invalid, NotFound
from shared.ingest.corpora import CorpusRecord
from shared.storage import pages
from shared.storage.database import Database
from shared.storage.names import checked

COLUMNS = """
    id, name, encode(hash, 'hex') AS hash, documents, created_at,
    dense_index IS NOT NULL AND sparse_index IS NOT NULL AS indexed"""
ONE = text(f"SELECT {COLUMNS} FROM corpora WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM corpora WHERE id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = pages.scope("corpora")
# Uploads that share documents insert them batch by batch; one at a time, they cannot deadlock.
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag corpora'))")
INSERT = text("INSERT INTO corpora (name, hash, documents) VALUES (:name, '', 0) RETURNING id")
INSERT_DOCUMENTS = text("""
    INSERT INTO documents (hash, problem, body)
    SELECT * FROM unnest(CAST(:hashes AS bytea[]), CAST(:problems AS text[]), CAST(:bodies AS text[])) u(hash)
    ORDER BY u.hash ON CONFLICT DO NOTHING""")
INSERT_MEMBERS = text("""
    INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash, meta)
    SELECT :corpus, u.ordinal, u.external_id, u.hash, CAST(u.meta AS jsonb)
    FROM unnest(CAST(:ordinals AS integer[]), CAST(:external_ids AS text[]), CAST(:hashes AS bytea[]),
        CAST(:metas AS text[])) u(ordinal, external_id, hash, meta)""")
FINISH = text("UPDATE corpora SET hash = :hash, documents = :documents WHERE id = :corpus")
SAME_IDS = text("""
    SELECT sha256(convert_to(string_agg(external_id, E'\\n' ORDER BY ordinal), 'UTF8'))
    FROM corpus_documents WHERE corpus_id = :corpus""")


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus as users see it."""

    id: int
    name: str
    hash: str
    """SHA-256 over the documents' hashes, in order."""
    documents: int
    indexed: bool
    """Both indexes are built: jobs may use it."""
    created_at: datetime


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload became."""

    corpus: Corpus
    new: bool
    """False: the same documents were there under this name."""


class _Digest:
    """What identifies an upload, updated batch by batch."""

    def __init__(self) -> None:
        self.documents = 0
        self._content = hashlib.sha256()
        self._ids = hashlib.sha256()

    def add(self, records: Sequence[CorpusRecord]) -> None:
        for record in records:
            self._content.update(bytes.fromhex(record.document.hash))
            self._ids.update((b"\n" if self.documents else b"") + (record.external_id or "").encode())
            self.documents += 1

    @property
    def content(self) -> bytes:
        return self._content.digest()

    @property
    def ids(self) -> bytes:
        return self._ids.digest()


async def create(database: Database, name: str, batches: AsyncIterator[list[CorpusRecord]]) -> Created:
    """Store an upload, all of it or nothing; the same upload again finds what is there.

    Every record has an external id, unique in the upload.

    Raises:
        Conflict: the name has other documents.
        Invalid: the name cannot be used, or there are no documents.
        InvalidLine: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": checked(name)})).mappings().first()
        if row is not None:
            return Created(corpus=await _same(connection, _corpus(row), batches), new=False)
        corpus = int((await connection.execute(INSERT, {"name": name})).scalar_one())
        digest = _Digest()
        async for records in batches:
            await _insert(connection, corpus, digest.documents, records)
            digest.add(records)
        if digest.documents == 0:
            raise Invalid("the upload holds no documents", hint="send one JSON object per line")
        values = {"corpus": corpus, "hash": digest.content, "documents": digest.documents}
        await connection.execute(FINISH, values)
        row = (await connection.execute(ONE, {"name": name})).mappings().one()
        return Created(corpus=_corpus(row), new=True)


async def _same(connection: AsyncConnection, corpus: Corpus, batches: AsyncIterator[list[CorpusRecord]]) -> Corpus:
    digest = _Digest()
    async for records in batches:
        digest.add(records)
    ids = (await connection.execute(SAME_IDS, {"corpus": corpus.id})).scalar()
    if (digest.content.hex(), digest.ids) != (corpus.hash, ids):
        raise Conflict(f"corpus {corpus.name!r} exists with other documents", hint="choose another name")
    return corpus


async def _insert(connection: AsyncConnection, corpus: int, first: int, records: Sequence[CorpusRecord]) -> None:
    hashes = [bytes.fromhex(record.document.hash) for record in records]
    documents = {
        "hashes": hashes,
        "problems": [record.document.problem for record in records],
        "bodies": [record.document.text for record in records],
    }
    await connection.execute(INSERT_DOCUMENTS, documents)
    members = {
        "corpus": corpus,
        "ordinals": list(range(first, first + len(records))),
        "external_ids": [record.external_id for record in records],
        "hashes": hashes,
        "metas": [msgspec.json.encode(record.meta).decode() for record in records],
    }
    await connection.execute(INSERT_MEMBERS, members)


async def get(database: Database, name: str) -> Corpus:
    """The corpus called `name`.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(ONE, {"name": name})).mappings().first()
    if row is None:
        raise NotFound(f"no corpus {name!r}", hint="mathrag corpus list")
    return _corpus(row)


async def listed(database: Database, limit: int, cursor: str | None = None) -> pages.Page[Corpus]:
    """Corpora, newest first."""
    before = pages.decode(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_corpus(row) for row in rows]
    return pages.page(found, limit, SCOPE, *(corpus.id for corpus in found[:limit][-1:]))


def _corpus(row: RowMapping) -> Corpus:
    return Corpus(**row)
