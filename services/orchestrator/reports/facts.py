"""What a comparison tells of jobs besides their figures."""

from collections.abc import Collection
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.sql import sql

FACTS = sql("""
    SELECT j.id, j.public_id, j.name, j.pipeline, d.name AS dataset, j.repeats, j.reuse, j.params, j.state,
        (SELECT count(*) FROM samples s
         WHERE s.job_id = j.id AND s.kind = 'item' AND s.state < {COMPLETED}) AS in_progress
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id WHERE j.id = ANY(:jobs)""")


async def facts(connection: AsyncConnection, rows: Collection[int]) -> dict[int, Any]:
    """Of these jobs, by jobs.id: names, parameters, state, and how many samples are still in progress."""
    return {row.id: row for row in await connection.execute(FACTS, {"jobs": sorted(rows)})}
