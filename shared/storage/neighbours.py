"""The samples before and after one in dataset order: an imported job may lack items, and repeats of them."""

from typing import NamedTuple

from sqlalchemy import text

from shared.storage.database import Database
from shared.storage.samples import Place

NEIGHBOURS = text("""
    WITH job AS (SELECT id FROM jobs WHERE public_id = :job)
    (SELECT true AS later, ordinal, repeat FROM samples
        WHERE job_id = (SELECT id FROM job) AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat)
        ORDER BY ordinal, repeat LIMIT 1)
    UNION ALL
    (SELECT false, ordinal, repeat FROM samples
        WHERE job_id = (SELECT id FROM job) AND kind = 'item' AND (ordinal, repeat) < (:ordinal, :repeat)
        ORDER BY ordinal DESC, repeat DESC LIMIT 1)""")


class AdjacentSamples(NamedTuple):
    """Index and repeat of both; None: there is no such sample."""

    earlier: Place | None
    later: Place | None


async def neighbours(database: Database, job: str, index: int, repeat: int) -> AdjacentSamples:
    """Find the samples next to this one; `job` is a public id."""
    async with database.statement() as connection:
        rows = await connection.execute(NEIGHBOURS, {"job": job, "ordinal": index, "repeat": repeat})
        found = {row.later: (row.ordinal, row.repeat) for row in rows}
    return AdjacentSamples(earlier=found.get(False), later=found.get(True))
