"""What jobs wait for because it is away: outages of the models whose calls their samples need next."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.sql import sql

# Hardly ever is anything away: without an outage nothing of the jobs is read.
WAITING = sql("""
    SELECT j.id AS job, o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o CROSS JOIN unnest(CAST(:jobs AS bigint[])) j(id)
    WHERE EXISTS (
        SELECT 1 FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        JOIN queue q ON q.call_id = t.call_id AND q.model_id = o.model_id WHERE s.job_id = j.id AND s.state = {WAITING})
    GROUP BY j.id, o.what ORDER BY min(o.since), o.what""")
ALL = text("""
    SELECT o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o GROUP BY o.what ORDER BY min(o.since), o.what""")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is away, and that calls wait for."""

    what: str
    said: str
    """How it was found to be away, the last time."""
    since: datetime
    next_try: datetime
    """In the past: it is being tried, or about to be."""


async def of_jobs(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, tuple[Waiting, ...]]:
    """What each of these jobs waits for; what a job does not wait for is missing."""
    found: defaultdict[int, tuple[Waiting, ...]] = defaultdict(tuple)
    for row in await connection.execute(WAITING, {"jobs": list(jobs)}):
        found[row.job] += (Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try),)
    return found


async def of_all(connection: AsyncConnection) -> list[Waiting]:
    """What any call waits for."""
    rows = await connection.execute(ALL)
    return [Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try) for row in rows]
