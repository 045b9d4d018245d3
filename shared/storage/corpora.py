"""Rows of corpora and their documents."""

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound
from shared.replies import CorpusRecord, Document
from shared.storage.database import Database, Page, check_name, copy, cursor_scope, load_named, load_page
from shared.storage.quota import start_tally

# Store corpora: named, ordered lists of documents. Documents are content-addressed and never change.

COLUMNS = """
    id, name, encode(hash, 'hex') AS hash, documents, project, created_at,
    dense_index IS NOT NULL AND sparse_index IS NOT NULL AS indexed,
    (SELECT g.name FROM graphs g WHERE g.corpus_id = corpora.id ORDER BY g.id LIMIT 1) AS graph"""
ONE = text(f"SELECT {COLUMNS} FROM corpora WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM corpora WHERE id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = cursor_scope("corpora")
# Uploads may share documents and insert them in batches; running one at a time, they cannot deadlock.
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag corpora'))")
INSERT = text("INSERT INTO corpora (name, hash, documents, made_by) VALUES (:name, '', 0, :made_by) RETURNING id")
STORED = text("SELECT hash FROM documents WHERE hash = ANY(CAST(:hashes AS bytea[]))")
DOCUMENTS = ("hash", "problem", "body")
MEMBERS = ("corpus_id", "ordinal", "external_id", "hash", "meta")
FINISH = text("UPDATE corpora SET hash = :hash, ids = :ids, documents = :documents, bytes = :bytes WHERE id = :corpus")
SAME_IDS = text("""
    SELECT sha256(convert_to(string_agg(external_id, E'\\n' ORDER BY ordinal), 'UTF8'))
    FROM corpus_documents WHERE corpus_id = :corpus""")


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus."""

    id: int
    """Number of the corpus in the database."""
    name: str
    """Name of the corpus."""
    hash: str
    """SHA-256 of the documents' hashes in order."""
    documents: int
    """Number of documents."""
    indexed: bool
    """Whether both indexes are built, so that jobs can use the corpus."""
    created_at: datetime
    """Time at which the corpus was stored."""
    graph: str | None = None
    """Graph whose facts are the documents; null if documents were uploaded."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class CreatedCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    corpus: Corpus
    new: bool
    """False if the same corpus existed already."""


class _CorpusDigest:
    """Hashes that identify an upload, updated batch by batch."""

    def __init__(self) -> None:
        self.documents = 0
        self._content = hashlib.sha256()
        self._ids = hashlib.sha256()

    def add(self, records: Sequence[CorpusRecord], hashes: Sequence[bytes]) -> None:
        for record, hash_ in zip(records, hashes, strict=True):
            self._content.update(hash_)
            self._ids.update((b"\n" if self.documents else b"") + (record.external_id or "").encode())
            self.documents += 1

    @property
    def content(self) -> bytes:
        return self._content.digest()

    @property
    def ids(self) -> bytes:
        return self._ids.digest()


async def create(database: Database, name: str, batches: AsyncIterator[list[CorpusRecord]]) -> CreatedCorpus:
    """Store an upload in its own transaction; see `store`."""
    async with database.transaction() as connection:
        return await store(connection, name, batches)


async def store(connection: AsyncConnection, name: str, batches: AsyncIterator[list[CorpusRecord]]) -> CreatedCorpus:
    """Store an upload completely or not at all; repeating an upload returns the existing corpus.

    Each record has an external id that is unique in the upload.

    Raises:
        Conflict: a corpus with this name has other documents.
        Invalid: the name cannot be used, or documents are missing.
        InvalidLine: from `batches`.
        TooLarge: the key has no room for them.
    """
    await connection.execute(LOCK)
    row = (await connection.execute(ONE, {"name": check_name(name)})).mappings().first()
    if row is not None:
        same = Corpus(**row)
        await _check_same_content(connection, same, batches)
        return CreatedCorpus(corpus=same, new=False)
    tally = await start_tally(connection)
    corpus = int((await connection.execute(INSERT, {"name": name, "made_by": tally.made_by})).scalar_one())
    digest = _CorpusDigest()
    async for records in batches:
        hashes = _hash_documents(records)
        # Insert new documents, then the corpus's members. LOCK prevents other uploads from inserting the same ones.
        await store_documents(connection, dict(zip(hashes, (record.document for record in records), strict=True)))
        members = [
            (corpus, ordinal, record.external_id, hash_, msgspec.json.encode(record.meta).decode())
            for ordinal, (record, hash_) in enumerate(zip(records, hashes, strict=True), start=digest.documents)
        ]
        await copy(connection, "corpus_documents", MEMBERS, members)
        texts = (f"{each.document.problem}{each.document.text}" for each in records)
        tally.add(sum(len(each.encode()) for each in (*texts, *(meta for *_, meta in members))))
        digest.add(records, hashes)
    if digest.documents == 0:
        raise Invalid("the upload holds no documents", hint="send one JSON object per line")
    counts = {"documents": digest.documents, "bytes": tally.bytes}
    await connection.execute(FINISH, {"corpus": corpus, "hash": digest.content, "ids": digest.ids, **counts})
    return CreatedCorpus(corpus=Corpus(**await load_named(connection, ONE, "corpus", name)), new=True)


async def store_documents(connection: AsyncConnection, documents: Mapping[bytes, Document]) -> None:
    """Insert those of the documents, by hash, that are not stored yet. The transaction must hold `LOCK`."""
    stored = set((await connection.execute(STORED, {"hashes": list(documents)})).scalars())
    new = [(key, each.problem, each.text) for key, each in documents.items() if key not in stored]
    await copy(connection, "documents", DOCUMENTS, new)


async def _check_same_content(
    connection: AsyncConnection, corpus: Corpus, batches: AsyncIterator[list[CorpusRecord]]
) -> None:
    digest = _CorpusDigest()
    async for records in batches:
        digest.add(records, _hash_documents(records))
    ids = (await connection.execute(SAME_IDS, {"corpus": corpus.id})).scalar()
    if (digest.content.hex(), digest.ids) != (corpus.hash, ids):
        raise Conflict(f"corpus {corpus.name!r} exists with other documents", hint="choose another name")


def _hash_documents(records: Sequence[CorpusRecord]) -> list[bytes]:
    return [bytes.fromhex(record.document.hash) for record in records]


async def get(database: Database, name: str) -> Corpus:
    """Get the corpus called `name`.

    Raises:
        NotFound: it does not exist.
    """
    async with database.transaction() as connection:
        return Corpus(**await load_named(connection, ONE, "corpus", name))


async def list_corpora(database: Database, limit: int, cursor: str | None = None) -> Page[Corpus]:
    """List corpora, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, lambda row: Corpus(**row))


SAMPLED = 1000
"""Number of documents whose lengths are measured."""
MOST_PLACES = 100
# Another embedder or tokenizer makes another index of the same content, and the old one stays.
INDEXES = text("""
    SELECT i.id, i.kind, i.state, encode(i.signature, 'hex') AS signature, i.documents, i.params AS recipe,
        i.created_at, i.id IN (c.dense_index, c.sparse_index) AS used
    FROM corpora c JOIN indexes i
        ON i.id IN (c.dense_index, c.sparse_index) OR i.params ->> 'corpus' = encode(c.hash, 'hex')
    WHERE c.id = :corpus ORDER BY used DESC, i.kind, i.id DESC LIMIT 50""")
# PostgreSQL knows the lengths in bytes without reading the texts.
TEXTS = text("""
    SELECT count(*) AS sampled, avg(octet_length(d.problem) + octet_length(d.body)) AS mean_bytes,
        max(octet_length(d.problem) + octet_length(d.body)) AS longest_bytes,
        count(*) FILTER (WHERE octet_length(d.problem) > 0) AS problems
    FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :corpus AND c.ordinal < :most""")
PLACES = text("""
    SELECT ordinal AS index, external_id AS id, meta FROM corpus_documents
    WHERE corpus_id = :corpus AND hash = :hash ORDER BY ordinal LIMIT :most""")
DOCUMENT = text("SELECT problem, body FROM documents WHERE hash = :hash")
HASH = re.compile(r"[0-9a-f]{64}")


class IndexDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An index build."""

    id: int
    """Number of the index in the database."""
    kind: str
    """Kind of the index: dense or sparse."""
    state: str
    """State of the build."""
    signature: str
    """SHA-256 of the recipe."""
    documents: int
    """Number of documents in the index."""
    recipe: dict[str, Any]
    """Everything that determines the index: back end with options, embedder or tokenizer, and the corpus's hash."""
    created_at: datetime
    """Time at which the build began."""
    used: bool
    """Whether searches use this index. Other indexes were built with earlier settings."""


class TextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the first 1,000 documents, in bytes of problem and text together."""

    sampled: int
    """Number of measured documents."""
    mean_bytes: float
    """Mean length in bytes."""
    longest_bytes: int
    """Largest length in bytes."""
    problems: int
    """Number of measured documents with a problem; the others are plain passages."""


class IndexProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The build of an index that runs or waits now."""

    kind: str
    """Kind of the index: dense or sparse."""
    documents: int | None
    """Number of documents indexed so far; null if the build waits for other builds."""


class CorpusDetails(Corpus, frozen=True, kw_only=True):
    """A corpus with its indexes and text lengths."""

    indexes: list[IndexDetails]
    """Indexes, those in use first."""
    texts: TextSizes
    """Lengths of the documents."""
    builds: list[IndexProgress] | None = None
    """Builds of indexes that run or wait now; null if the retriever does not answer."""


class CorpusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of a document in a corpus."""

    index: int
    """Position in the corpus, from 0."""
    id: str
    """Id of the document from the upload."""
    meta: dict[str, Any]
    """Further fields of the document from the upload."""


class CorpusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A complete document of a corpus."""

    hash: str
    """Hash of the document."""
    problem: str
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Text of the document."""
    places: list[CorpusPlace]
    """The first 100 occurrences; a corpus may have the same content with several ids."""


async def load_details(database: Database, name: str) -> CorpusDetails:
    """Load the corpus called `name` with its details.

    Raises:
        NotFound: it does not exist.
    """
    corpus = await get(database, name)
    async with database.transaction() as connection:
        indexes = (await connection.execute(INDEXES, {"corpus": corpus.id})).mappings().all()
        texts = (await connection.execute(TEXTS, {"corpus": corpus.id, "most": SAMPLED})).mappings().one()
    return CorpusDetails(
        indexes=[IndexDetails(**row) for row in indexes],
        texts=TextSizes(
            sampled=texts["sampled"], mean_bytes=float(texts["mean_bytes"] or 0),
            longest_bytes=texts["longest_bytes"] or 0, problems=texts["problems"],
        ),
        **msgspec.structs.asdict(corpus),
    )  # fmt: skip


async def load_document(database: Database, name: str, hash_: str) -> CorpusDocument:
    """Load the document with this hash.

    Raises:
        NotFound: the corpus does not exist, or it does not hold the document.
    """
    corpus = await get(database, name)
    values = {"corpus": corpus.id, "hash": bytes.fromhex(hash_) if HASH.fullmatch(hash_) else b"", "most": MOST_PLACES}
    async with database.transaction() as connection:
        places = [CorpusPlace(**row) for row in (await connection.execute(PLACES, values)).mappings()]
        if not places:
            hint = f"name a document by its hash, which `mathrag corpus preview {name} --json` shows"
            raise NotFound(f"corpus {name!r} holds no document {hash_[:80]!r}", hint=hint)
        row = (await connection.execute(DOCUMENT, values)).one()
    return CorpusDocument(hash=hash_, problem=row.problem, text=row.body, places=places)


LONGEST_TEXT = 4_000
"""Longest text that an answer shows, in characters; `GET /v1/jobs/{job}/samples/{index}` has the full text."""
# A corpus may hold the same content under several ids: take the first.
OF_CORPUS = text("""
    SELECT DISTINCT ON (d.hash) d.hash, c.external_id, left(d.problem, :n) AS problem, left(d.body, :n) AS body,
        greatest(length(d.problem), length(d.body)) > :n AS truncated
    FROM documents d LEFT JOIN (corpus_documents c JOIN corpora k ON k.id = c.corpus_id AND k.name = :corpus)
        ON c.hash = d.hash
    WHERE d.hash = ANY(:hashes) ORDER BY d.hash, c.ordinal""")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document with texts that may be cut."""

    id: str | None
    """Id of the document in the corpus; null if the corpus does not have the document."""
    hash: str
    """Hash of the content, which identifies the document in jobs and provenance."""
    problem: str
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Text of the document."""
    truncated: bool
    """Whether problem or text were cut."""


async def load_documents(connection: AsyncConnection, corpus: str | None, hashes: Sequence[str]) -> dict[str, Shown]:
    """Load the documents with these hashes, by hash."""
    values = {"corpus": corpus, "hashes": [bytes.fromhex(hash_) for hash_ in hashes], "n": LONGEST_TEXT}
    return {
        row.hash.hex(): Shown(
            id=row.external_id, hash=row.hash.hex(), problem=row.problem, text=row.body, truncated=row.truncated
        )
        for row in await connection.execute(OF_CORPUS, values)
    }
