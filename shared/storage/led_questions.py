"""Questions of a dataset to which rules of a bank lead, and the documents that these follow."""

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


class Summary(NamedTuple):
    """What a dataset asks of graphs."""

    queries: int
    """Items that say what they ask of a graph."""
    led: int
    """Those among them to which rules lead."""
    banks: frozenset[str]
    """Hashes of the banks of these rules."""


class LedQuestion(NamedTuple):
    """An item to which rules lead."""

    ordinal: int
    text: str
    golds: Sequence[str]
    """The first is the item's own; none where it has no gold answer."""
    query: FactQuery


async def summary(connection: AsyncConnection, dataset: int) -> Summary:
    """Of the dataset with this row id."""
    row = (await connection.execute(SUMMARY, {"dataset": dataset})).one()
    return Summary(row.queries, row.led, frozenset(row.banks or ()))


async def ordinals(connection: AsyncConnection, dataset: int) -> list[int]:
    """Places of the items to which rules lead."""
    return list((await connection.execute(ORDINALS, {"dataset": dataset})).scalars())


async def questions(connection: AsyncConnection, dataset: int, wanted: Sequence[int]) -> list[LedQuestion]:
    """The items at these places, in order."""
    rows = await connection.execute(ITEMS, {"dataset": dataset, "ordinals": list(wanted)})
    return [
        LedQuestion(row.ordinal, row.question, _golds(row.gold, row.expected), msgspec.convert(row.query, FactQuery))
        for row in rows
    ]


async def texts(connection: AsyncConnection, corpus: str, ids: Collection[str]) -> dict[str, str]:
    """The documents of a corpus with these external ids, as they are indexed; those that it lacks are missing."""
    rows = await connection.execute(TEXTS, {"corpus": corpus, "ids": sorted(ids)})
    return {row.external_id: f"{row.problem}\n{row.body}" if row.problem else row.body for row in rows}


def _golds(gold: str | None, expected: object) -> list[str]:
    further = () if expected is None else msgspec.convert(expected, Expected).golds
    return [] if gold is None else [gold, *further]
