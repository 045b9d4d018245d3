"""List items of a dataset and documents of a corpus page by page, in uploaded order."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from sqlalchemy import TextClause, text

from shared.storage import corpora, datasets, pages
from shared.storage.database import Database
from shared.storage.documents import LONGEST_TEXT, Shown

FIRST = -1
"""Value before the first ordinal."""
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
    """An item of a dataset."""

    index: int
    """Position in the dataset, from 0; `mathrag sample show JOB INDEX` shows a job's answer to it."""
    id: str | None
    question: str
    gold: str | None
    """The expected answer."""
    subject: str | None
    level: str | None
    gold_documents: dict[str, int] | None
    """Grades of the relevant documents by id; null if the item names none."""
    relation: str | None
    """The relation of a graph that the question asks for."""


class DocumentPreview(Shown, frozen=True, kw_only=True):
    """A document of a corpus, with texts up to 4,000 characters."""

    index: int
    """Position in the corpus, from 0."""


Preview = TypeVar("Preview", ItemPreview, DocumentPreview)


async def list_items(database: Database, dataset: str, limit: int, cursor: str | None) -> pages.Page[ItemPreview]:
    """List a dataset's items in order.

    Raises:
        NotFound: no such dataset.
        BadRequest: the cursor belongs to another list.
    """
    return await list_items_of(database, await datasets.get(database, dataset), limit, cursor)


async def list_items_of(
    database: Database, dataset: datasets.Dataset, limit: int, cursor: str | None
) -> pages.Page[ItemPreview]:
    """List the items of a dataset that is already loaded."""
    scope = pages.cursor_scope("items", dataset=str(dataset.id))
    return await _page(database, ItemPreview, ITEMS, {"dataset": dataset.id}, scope, limit, cursor)


async def list_documents(
    database: Database, corpus: str, limit: int, cursor: str | None
) -> pages.Page[DocumentPreview]:
    """List a corpus's documents in order.

    Raises:
        NotFound: no such corpus.
        BadRequest: the cursor is of another list.
    """
    return await list_documents_of(database, await corpora.get(database, corpus), limit, cursor)


async def list_documents_of(
    database: Database, corpus: corpora.Corpus, limit: int, cursor: str | None
) -> pages.Page[DocumentPreview]:
    """List the documents of a corpus that is already loaded."""
    scope = pages.cursor_scope("documents", corpus=str(corpus.id))
    values = {"corpus": corpus.id, "most": LONGEST_TEXT}
    return await _page(database, DocumentPreview, DOCUMENTS, values, scope, limit, cursor)


async def _page(
    database: Database, kind: type[Preview], statement: TextClause, values: Mapping[str, object],
    scope: str, limit: int, cursor: str | None,
) -> pages.Page[Preview]:  # fmt: skip
    """Fetch the rows of `statement` after the cursor's ordinal as instances of `kind`."""
    after = pages.decode_cursor(cursor, scope, 1)[0] if cursor else FIRST
    async with database.transaction() as connection:
        found = await connection.execute(statement, {**values, "after": after, "n": limit + 1})
        rows = [kind(**row) for row in found.mappings()]
    return pages.make_page(rows, limit, scope, *(row.index for row in rows[:limit][-1:]))
