"""Loads the facts about jobs that a comparison needs besides their figures."""

from collections.abc import Collection
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import sql

FACTS = sql("""
    SELECT j.id, j.public_id, j.name, j.pipeline, d.name AS dataset, j.repeats, j.reuse, j.params, j.state,
        (SELECT count(*) FROM samples s
         WHERE s.job_id = j.id AND s.kind = 'item' AND s.state < {COMPLETED}) AS in_progress
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id WHERE j.id = ANY(:jobs)""")


async def load_facts(connection: AsyncConnection, rows: Collection[int]) -> dict[int, Any]:
    """Return the names, parameters, state and number of samples in progress of these jobs, by jobs.id."""
    return {row.id: row for row in await connection.execute(FACTS, {"jobs": sorted(rows)})}
