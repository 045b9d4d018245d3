"""Details of a corpus: its indexes with their recipes, the lengths of its texts, and single documents in full."""

import re
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text

from shared.errors import NotFound
from shared.storage import corpora
from shared.storage.database import Database

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
    kind: str
    state: str
    signature: str
    """SHA-256 of the recipe."""
    documents: int
    recipe: dict[str, Any]
    """Everything that determines the index: back end with options, embedder or tokenizer, and the corpus's hash."""
    created_at: datetime
    used: bool
    """Whether searches use this index; others belong to earlier settings."""


class TextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the first 1,000 documents, in bytes of problem and text together."""

    sampled: int
    mean_bytes: float
    longest_bytes: int
    problems: int
    """Sampled documents with a problem; the others are plain passages."""


class CorpusDetails(corpora.Corpus, frozen=True, kw_only=True):
    """A corpus with its indexes and text lengths."""

    indexes: list[IndexDetails]
    """Indexes, those in use first."""
    texts: TextSizes


class CorpusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of a document in a corpus."""

    index: int
    """Position in the corpus, from 0."""
    id: str
    meta: dict[str, Any]
    """Further fields of the upload."""


class CorpusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a corpus in full."""

    hash: str
    problem: str
    text: str
    places: list[CorpusPlace]
    """The first 100 occurrences; a corpus may hold the same content under several ids."""


async def load_details(database: Database, name: str) -> CorpusDetails:
    """Load the corpus called `name` with its details.

    Raises:
        NotFound: there is none.
    """
    corpus = await corpora.get(database, name)
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
        NotFound: there is no such corpus, or it does not hold the document.
    """
    corpus = await corpora.get(database, name)
    values = {"corpus": corpus.id, "hash": bytes.fromhex(hash_) if HASH.fullmatch(hash_) else b"", "most": MOST_PLACES}
    async with database.transaction() as connection:
        places = [CorpusPlace(**row) for row in (await connection.execute(PLACES, values)).mappings()]
        if not places:
            hint = f"name a document by its hash, which `mathrag corpus preview {name} --json` shows"
            raise NotFound(f"corpus {name!r} holds no document {hash_[:80]!r}", hint=hint)
        row = (await connection.execute(DOCUMENT, values)).one()
    return CorpusDocument(hash=hash_, problem=row.problem, text=row.body, places=places)
