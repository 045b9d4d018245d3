"""Questions of a dataset that rules of a bank lead to, and the documents that these rules follow."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery

SUMMARY = text("""
    SELECT count(query) AS queries, count(*) FILTER (WHERE query ? 'leads') AS led,
        array_agg(DISTINCT query ->> 'bank') FILTER (WHERE query ? 'leads') AS banks
    FROM items WHERE dataset_id = :dataset""")
ORDINALS = text("SELECT ordinal FROM items WHERE dataset_id = :dataset AND query ? 'leads' ORDER BY ordinal")
ITEMS = text("""
    SELECT ordinal, question, gold, expected, query FROM items
    WHERE dataset_id = :dataset AND ordinal = ANY(:ordinals) ORDER BY ordinal""")
TEXTS = text("""
    SELECT c.external_id, d.problem, d.body FROM corpora k JOIN corpus_documents c ON c.corpus_id = k.id
    JOIN documents d ON d.hash = c.hash WHERE k.name = :corpus AND c.external_id = ANY(:ids)""")


class GraphQuestionCounts(NamedTuple):
    """Counts of a dataset's questions about graphs."""

    queries: int
    """Items with a query to a graph."""
    led: int
    """Items among them that rules lead to."""
    banks: frozenset[str]
    """Hashes of these rules' banks."""


class LedQuestion(NamedTuple):
    """An item that rules lead to."""

    ordinal: int
    text: str
    golds: Sequence[str]
    """Gold answers, the item's own first; empty if it has none."""
    query: FactQuery


async def count_questions(connection: AsyncConnection, dataset: int) -> GraphQuestionCounts:
    """Count the graph questions of a dataset (row id)."""
    row = (await connection.execute(SUMMARY, {"dataset": dataset})).one()
    return GraphQuestionCounts(row.queries, row.led, frozenset(row.banks or ()))


async def list_ordinals(connection: AsyncConnection, dataset: int) -> list[int]:
    """List the ordinals of the items that rules lead to."""
    return list((await connection.execute(ORDINALS, {"dataset": dataset})).scalars())


async def load_questions(connection: AsyncConnection, dataset: int, wanted: Sequence[int]) -> list[LedQuestion]:
    """Load the items with these ordinals, in order."""
    rows = await connection.execute(ITEMS, {"dataset": dataset, "ordinals": list(wanted)})
    return [
        LedQuestion(row.ordinal, row.question, _golds(row.gold, row.expected), msgspec.convert(row.query, FactQuery))
        for row in rows
    ]


async def load_texts(connection: AsyncConnection, corpus: str, ids: Collection[str]) -> dict[str, str]:
    """Load documents of a corpus by external id, as they are indexed; unknown ids are left out."""
    rows = await connection.execute(TEXTS, {"corpus": corpus, "ids": sorted(ids)})
    return {row.external_id: f"{row.problem}\n{row.body}" if row.problem else row.body for row in rows}


def _golds(gold: str | None, expected: object) -> list[str]:
    further = () if expected is None else msgspec.convert(expected, Expected).golds
    return [] if gold is None else [gold, *further]
