"""Details of a dataset: how many items have gold answers, and their subjects and levels."""

import msgspec
from sqlalchemy import text

from shared.storage import datasets
from shared.storage.database import Database

COUNTED = 100_000
"""Number of items that are counted, from the beginning."""
MOST = 50
"""Largest number of subjects, and of levels, that are listed."""
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
    """Number of items with this subject or level."""

    name: str
    items: int


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the dataset's items."""

    counted: int
    """Number of counted items, at most the first 100,000."""
    gold: int
    """Items with an expected answer."""
    gold_documents: int
    """Items that name relevant documents."""
    subjects: list[ItemCount]
    """The 50 most frequent subjects."""
    levels: list[ItemCount]
    """The first 50 levels."""


class DatasetDetails(datasets.Dataset, frozen=True, kw_only=True):
    """A dataset with the counts of its items."""

    counts: ItemCounts


async def load_details(database: Database, name: str) -> DatasetDetails:
    """Load the dataset called `name` with its counts.

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
