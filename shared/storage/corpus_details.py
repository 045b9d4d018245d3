"""A corpus from the inside: its indexes with their recipes, how long its texts are, and each document in full."""

import re
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text

from shared.errors import NotFound
from shared.storage import corpora
from shared.storage.database import Database

SAMPLED = 1000
"""Documents that say how long texts are."""
MOST_PLACES = 100
# An index stands for the corpus's content: another embedder or tokenizer makes another one, and the old one stays.
INDEXES = text("""
    SELECT i.id, i.kind, i.state, encode(i.signature, 'hex') AS signature, i.documents, i.params AS recipe,
        i.created_at, i.id IN (c.dense_index, c.sparse_index) AS used
    FROM corpora c JOIN indexes i
        ON i.id IN (c.dense_index, c.sparse_index) OR i.params ->> 'corpus' = encode(c.hash, 'hex')
    WHERE c.id = :corpus ORDER BY used DESC, i.kind, i.id DESC LIMIT 50""")
# The lengths in bytes are known without reading the texts.
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
    """Digest of the recipe."""
    documents: int
    recipe: dict[str, Any]
    """Everything that determines it: back end, its options, embedder or tokenizer, and the corpus's hash."""
    created_at: datetime
    used: bool
    """The corpus is searched by it; another one is of other settings."""


class TextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How long texts are, by the first 1,000 documents; lengths in bytes of problem and text together."""

    sampled: int
    mean_bytes: float
    longest_bytes: int
    problems: int
    """Of the sampled documents, those with a problem; the others are plain passages."""


class CorpusDetails(corpora.Corpus, frozen=True, kw_only=True):
    """A corpus, and what it is made of."""

    indexes: list[IndexDetails]
    """Those that it is searched by first."""
    texts: TextSizes


class CorpusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a document in a corpus."""

    index: int
    """In the corpus's order, from 0."""
    id: str
    meta: dict[str, Any]
    """What else its upload said of it."""


class CorpusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a corpus in full."""

    hash: str
    problem: str
    text: str
    places: list[CorpusPlace]
    """A corpus may hold the same content under several ids; the first 100."""


async def details(database: Database, name: str) -> CorpusDetails:
    """The corpus called `name`.

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


async def document(database: Database, name: str, hash_: str) -> CorpusDocument:
    """The document with this hash.

    Raises:
        NotFound: there is no such corpus, or it does not hold the document.
    """
    corpus = await corpora.get(database, name)
    values = {"corpus": corpus.id, "hash": bytes.fromhex(hash_) if HASH.fullmatch(hash_) else b"", "most": MOST_PLACES}
    async with database.transaction() as connection:
        places = [CorpusPlace(**row) for row in (await connection.execute(PLACES, values)).mappings()]
        if not places:
            hint = f"documents are named by their hash, as `mathrag corpus preview {name} --json` shows it"
            raise NotFound(f"corpus {name!r} holds no document {hash_[:80]!r}", hint=hint)
        row = (await connection.execute(DOCUMENT, values)).one()
    return CorpusDocument(hash=hash_, problem=row.problem, text=row.body, places=places)
