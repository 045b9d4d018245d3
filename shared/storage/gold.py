"""The documents that a dataset says are relevant to its questions, as a job's corpus has them."""

from collections import defaultdict

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database

# Ids are the uploads' own: an item names a document as the corpus's upload did.
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
"""What stands in the place of the hash of a document that the corpus does not hold."""


async def known(connection: AsyncConnection, job: int) -> bool:
    """Whether the job searches a corpus and its dataset names relevant documents."""
    return bool((await connection.execute(ANY, {"job": job})).scalar_one())


async def documents(database: Database, job: int, first: int, last: int) -> dict[int, dict[str, int]]:
    """Ordinal -> {document hash: grade} for the items from `first` to `last` that have a relevant document.

    Documents of the same content are one, with the better grade. One that the corpus does not hold counts as relevant,
    too: nobody finds it.
    """
    async with database.transaction() as connection:
        return await among(connection, job, first, last)


async def among(connection: AsyncConnection, job: int, first: int, last: int) -> dict[int, dict[str, int]]:
    """The same, as a part of the caller's transaction."""
    gold: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(FOUND, {"job": job, "first": first, "last": last}):
        document = row.hash or f"{ABSENT}{row.name}"
        gold[row.ordinal][document] = max(row.grade, gold[row.ordinal].get(document, 0))
    return dict(gold)


async def labelled(connection: AsyncConnection, job: int, first: int, last: int) -> frozenset[int]:
    """Ordinals of the items from `first` to `last` of which it is known what is relevant, be it nothing."""
    rows = await connection.execute(LABELLED, {"job": job, "first": first, "last": last})
    return frozenset(rows.scalars())
