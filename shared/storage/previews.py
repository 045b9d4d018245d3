"""Items of a dataset and documents of a corpus, page by page, as they were uploaded."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from sqlalchemy import TextClause, text

from shared.storage import corpora, datasets, pages
from shared.storage.database import Database
from shared.storage.documents import LONGEST_TEXT, Shown

FIRST = -1
"""Comes before the first ordinal."""
ITEMS = text("""
    SELECT ordinal AS index, custom_id AS id, question, gold, subject, level, gold_documents,
        query ->> 'relation' AS relation
    FROM items WHERE dataset_id = :dataset AND ordinal > :after ORDER BY ordinal LIMIT :n""")
DOCUMENTS = text("""
    SELECT c.ordinal AS index, c.external_id AS id, encode(c.hash, 'hex') AS hash, left(d.problem, :most) AS problem,
        left(d.body, :most) AS text, greatest(length(d.problem), length(d.body)) > :most AS truncated
    FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :corpus AND c.ordinal > :after ORDER BY c.ordinal LIMIT :n""")


class ItemPreview(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a dataset."""

    index: int
    """In the dataset's order, from 0: `sample show JOB INDEX` shows a job's answer to it."""
    id: str | None
    question: str
    gold: str | None
    """The expected answer."""
    subject: str | None
    level: str | None
    gold_documents: dict[str, int] | None
    """Grades of the relevant documents by their ids; null: none are named."""
    relation: str | None
    """Of a graph, that it asks for."""


class DocumentPreview(Shown, frozen=True, kw_only=True):
    """One document of a corpus, its texts up to 4,000 characters."""

    index: int
    """In the corpus's order, from 0."""


Preview = TypeVar("Preview", ItemPreview, DocumentPreview)


async def items(database: Database, dataset: str, limit: int, cursor: str | None) -> pages.Page[ItemPreview]:
    """Items in the dataset's order.

    Raises:
        NotFound: no such dataset.
        BadRequest: the cursor is of another list.
    """
    return await items_of(database, await datasets.get(database, dataset), limit, cursor)


async def items_of(
    database: Database, dataset: datasets.Dataset, limit: int, cursor: str | None
) -> pages.Page[ItemPreview]:
    """The same of a dataset that is known."""
    scope = pages.scope("items", dataset=str(dataset.id))
    return await _page(database, ItemPreview, ITEMS, {"dataset": dataset.id}, scope, limit, cursor)


async def documents(database: Database, corpus: str, limit: int, cursor: str | None) -> pages.Page[DocumentPreview]:
    """Documents in the corpus's order.

    Raises:
        NotFound: no such corpus.
        BadRequest: the cursor is of another list.
    """
    return await documents_of(database, await corpora.get(database, corpus), limit, cursor)


async def documents_of(
    database: Database, corpus: corpora.Corpus, limit: int, cursor: str | None
) -> pages.Page[DocumentPreview]:
    """The same of a corpus that is known."""
    scope = pages.scope("documents", corpus=str(corpus.id))
    values = {"corpus": corpus.id, "most": LONGEST_TEXT}
    return await _page(database, DocumentPreview, DOCUMENTS, values, scope, limit, cursor)


async def _page(
    database: Database, kind: type[Preview], statement: TextClause, values: Mapping[str, object],
    scope: str, limit: int, cursor: str | None,
) -> pages.Page[Preview]:  # fmt: skip
    """Rows of `statement` after the cursor's ordinal, as `kind`."""
    after = pages.decode(cursor, scope, 1)[0] if cursor else FIRST
    async with database.transaction() as connection:
        found = await connection.execute(statement, {**values, "after": after, "n": limit + 1})
        rows = [kind(**row) for row in found.mappings()]
    return pages.page(rows, limit, scope, *(row.index for row in rows[:limit][-1:]))
