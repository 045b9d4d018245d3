"""Load the gold documents of a job's questions, by the hashes that they have in the job's corpus."""

from collections import defaultdict

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database

# Items name documents by the ids of the corpus's upload.
FOUND = text("""
    SELECT i.ordinal, g.key AS name, CAST(g.value AS integer) AS grade, encode(d.hash, 'hex') AS hash
    FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id CROSS JOIN LATERAL jsonb_each_text(i.gold_documents) g
    LEFT JOIN corpus_documents d ON d.corpus_id = j.corpus_id AND d.external_id = g.key
    WHERE j.id = :job AND i.ordinal BETWEEN :first AND :last AND CAST(g.value AS integer) > 0""")
ANY = text("""
    SELECT j.corpus_id IS NOT NULL AND EXISTS (
        SELECT FROM items i WHERE i.dataset_id = j.dataset_id AND i.gold_documents IS NOT NULL) AS found
    FROM jobs j WHERE j.id = :job""")
LABELLED = text("""
    SELECT i.ordinal FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.id = :job AND i.ordinal BETWEEN :first AND :last AND i.gold_documents IS NOT NULL""")
ABSENT = "absent: "
"""Prefix that replaces the hash of a document that the corpus does not hold."""


async def has_gold_documents(connection: AsyncConnection, job: int) -> bool:
    """Tell whether the job searches a corpus and its dataset names relevant documents."""
    return bool((await connection.execute(ANY, {"job": job})).scalar_one())


async def load_gold_documents(database: Database, job: int, first: int, last: int) -> dict[int, dict[str, int]]:
    """Load {ordinal: {document hash: grade}} for the items from `first` to `last` that have a relevant document.

    Documents with equal content count once, with the better grade. A document that the corpus does not hold counts as
    a relevant document that no search can find.
    """
    async with database.transaction() as connection:
        return await read_gold_documents(connection, job, first, last)


async def read_gold_documents(
    connection: AsyncConnection, job: int, first: int, last: int
) -> dict[int, dict[str, int]]:
    """Load the same in the caller's transaction."""
    gold: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(FOUND, {"job": job, "first": first, "last": last}):
        document = row.hash or f"{ABSENT}{row.name}"
        gold[row.ordinal][document] = max(row.grade, gold[row.ordinal].get(document, 0))
    return dict(gold)


async def list_labelled_items(connection: AsyncConnection, job: int, first: int, last: int) -> frozenset[int]:
    """List the items from `first` to `last` that say which documents are relevant, even if none is."""
    rows = await connection.execute(LABELLED, {"job": job, "first": first, "last": last})
    return frozenset(rows.scalars())
