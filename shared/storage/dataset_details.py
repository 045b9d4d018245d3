"""A dataset from the inside: how many of its items have a gold answer, and how they divide by subject and level."""

import msgspec
from sqlalchemy import text

from shared.storage import datasets
from shared.storage.database import Database

COUNTED = 100_000
"""Items that are counted, the first."""
MOST = 50
"""Subjects, or levels, that are named."""
COUNTS = text("""
    WITH counted AS MATERIALIZED (
        SELECT subject, level, gold IS NOT NULL AS gold, gold_documents IS NOT NULL AS documents
        FROM items WHERE dataset_id = :dataset AND ordinal < :counted)
    SELECT 'all' AS part, NULL AS name, count(*) AS items, count(*) FILTER (WHERE gold) AS gold,
        count(*) FILTER (WHERE documents) AS documents FROM counted
    UNION ALL (SELECT 'subject', subject, count(*), 0, 0 FROM counted WHERE subject IS NOT NULL
        GROUP BY subject ORDER BY count(*) DESC, subject LIMIT :most)
    UNION ALL (SELECT 'level', level, count(*), 0, 0 FROM counted WHERE level IS NOT NULL
        GROUP BY level ORDER BY length(level), level LIMIT :most)""")


class ItemCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many items have this subject or level."""

    name: str
    items: int


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the items have."""

    counted: int
    """Of a larger dataset only the first 100,000."""
    gold: int
    """With an expected answer."""
    gold_documents: int
    """That name relevant documents."""
    subjects: list[ItemCount]
    """The 50 most frequent."""
    levels: list[ItemCount]
    """The first 50."""


class DatasetDetails(datasets.Dataset, frozen=True, kw_only=True):
    """A dataset, and what its items have."""

    counts: ItemCounts


async def details(database: Database, name: str) -> DatasetDetails:
    """The dataset called `name`.

    Raises:
        NotFound: there is none.
    """
    dataset = await datasets.get(database, name)
    async with database.statement() as connection:
        rows = (await connection.execute(COUNTS, {"dataset": dataset.id, "counted": COUNTED, "most": MOST})).all()
    (whole,) = (row for row in rows if row.part == "all")
    subjects, levels = (
        [ItemCount(name=row.name, items=row.items) for row in rows if row.part == part] for part in ("subject", "level")
    )
    counts = ItemCounts(
        counted=whole.items, gold=whole.gold, gold_documents=whole.documents, subjects=subjects, levels=levels
    )
    return DatasetDetails(counts=counts, **msgspec.structs.asdict(dataset))
