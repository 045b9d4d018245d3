"""Store corpora: named, ordered lists of documents. Documents are content-addressed and never change."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.documents import CorpusRecord
from shared.errors import Conflict, Invalid
from shared.storage import pages
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.names import check_name
from shared.storage.unknown import make_not_found

COLUMNS = """
    id, name, encode(hash, 'hex') AS hash, documents, created_at,
    dense_index IS NOT NULL AND sparse_index IS NOT NULL AS indexed,
    (SELECT g.name FROM graphs g WHERE g.corpus_id = corpora.id ORDER BY g.id LIMIT 1) AS graph"""
ONE = text(f"SELECT {COLUMNS} FROM corpora WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM corpora WHERE id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = pages.cursor_scope("corpora")
# Uploads may share documents and insert them in batches; running one at a time, they cannot deadlock.
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag corpora'))")
INSERT = text("INSERT INTO corpora (name, hash, documents) VALUES (:name, '', 0) RETURNING id")
STORED = text("SELECT hash FROM documents WHERE hash = ANY(CAST(:hashes AS bytea[]))")
DOCUMENTS = ("hash", "problem", "body")
MEMBERS = ("corpus_id", "ordinal", "external_id", "hash", "meta")
FINISH = text("UPDATE corpora SET hash = :hash, ids = :ids, documents = :documents WHERE id = :corpus")
SAME_IDS = text("""
    SELECT sha256(convert_to(string_agg(external_id, E'\\n' ORDER BY ordinal), 'UTF8'))
    FROM corpus_documents WHERE corpus_id = :corpus""")


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus as users see it."""

    id: int
    name: str
    hash: str
    """SHA-256 of the documents' hashes in order."""
    documents: int
    indexed: bool
    """Whether both indexes are built, so that jobs can use the corpus."""
    created_at: datetime
    graph: str | None = None
    """The graph whose facts are the documents; null if documents were uploaded."""


class CreatedCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    corpus: Corpus
    new: bool
    """False if the same corpus existed already."""


class _HashedRecord(NamedTuple):
    """A record with the hash of its document."""

    hash: bytes
    record: CorpusRecord


class _CorpusDigest:
    """Hashes that identify an upload, updated batch by batch."""

    def __init__(self) -> None:
        self.documents = 0
        self._content = hashlib.sha256()
        self._ids = hashlib.sha256()

    def add(self, batch: Sequence[_HashedRecord]) -> None:
        for each in batch:
            self._content.update(each.hash)
            self._ids.update((b"\n" if self.documents else b"") + (each.record.external_id or "").encode())
            self.documents += 1

    @property
    def content(self) -> bytes:
        return self._content.digest()

    @property
    def ids(self) -> bytes:
        return self._ids.digest()


async def create(database: Database, name: str, batches: AsyncIterator[list[CorpusRecord]]) -> CreatedCorpus:
    """Store an upload in a transaction of its own; see `store`."""
    async with database.transaction() as connection:
        return await store(connection, name, batches)


async def store(connection: AsyncConnection, name: str, batches: AsyncIterator[list[CorpusRecord]]) -> CreatedCorpus:
    """Store an upload completely or not at all; repeating an upload returns the existing corpus.

    Each record has an external id that is unique in the upload.

    Raises:
        Conflict: a corpus with this name has other documents.
        Invalid: the name cannot be used, or there are no documents.
        InvalidLine: from `batches`.
    """
    await connection.execute(LOCK)
    row = (await connection.execute(ONE, {"name": check_name(name)})).mappings().first()
    if row is not None:
        return CreatedCorpus(corpus=await _check_same_content(connection, _corpus(row), batches), new=False)
    corpus = int((await connection.execute(INSERT, {"name": name})).scalar_one())
    digest = _CorpusDigest()
    async for records in batches:
        batch = _hash_records(records)
        await _insert(connection, corpus, digest.documents, batch)
        digest.add(batch)
    if digest.documents == 0:
        raise Invalid("the upload holds no documents", hint="send one JSON object per line")
    values = {"corpus": corpus, "hash": digest.content, "ids": digest.ids, "documents": digest.documents}
    await connection.execute(FINISH, values)
    row = (await connection.execute(ONE, {"name": name})).mappings().one()
    return CreatedCorpus(corpus=_corpus(row), new=True)


async def _check_same_content(
    connection: AsyncConnection, corpus: Corpus, batches: AsyncIterator[list[CorpusRecord]]
) -> Corpus:
    digest = _CorpusDigest()
    async for records in batches:
        digest.add(_hash_records(records))
    ids = (await connection.execute(SAME_IDS, {"corpus": corpus.id})).scalar()
    if (digest.content.hex(), digest.ids) != (corpus.hash, ids):
        raise Conflict(f"corpus {corpus.name!r} exists with other documents", hint="choose another name")
    return corpus


def _hash_records(records: Sequence[CorpusRecord]) -> list[_HashedRecord]:
    return [_HashedRecord(bytes.fromhex(record.document.hash), record) for record in records]


async def _insert(connection: AsyncConnection, corpus: int, first: int, batch: Sequence[_HashedRecord]) -> None:
    """Insert new documents, then the corpus's members. LOCK prevents other uploads from inserting the same ones."""
    documents = {each.hash: each.record.document for each in batch}
    stored = (await connection.execute(STORED, {"hashes": list(documents)})).scalars()
    for known in stored:
        del documents[known]
    new = [(key, document.problem, document.text) for key, document in documents.items()]
    await copy(connection, "documents", DOCUMENTS, new)
    members = [
        (corpus, ordinal, each.record.external_id, each.hash, msgspec.json.encode(each.record.meta).decode())
        for ordinal, each in enumerate(batch, start=first)
    ]
    await copy(connection, "corpus_documents", MEMBERS, members)


async def get(database: Database, name: str) -> Corpus:
    """Get the corpus called `name`.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(ONE, {"name": name})).mappings().first()
        if row is None:
            raise await make_not_found(connection, "corpus", name)
    return _corpus(row)


async def list_corpora(database: Database, limit: int, cursor: str | None = None) -> pages.Page[Corpus]:
    """List corpora, newest first."""
    before = pages.decode_cursor(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_corpus(row) for row in rows]
    return pages.make_page(found, limit, SCOPE, *(corpus.id for corpus in found[:limit][-1:]))


def _corpus(row: RowMapping) -> Corpus:
    return Corpus(**row)
