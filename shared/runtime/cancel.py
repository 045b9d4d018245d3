"""Cancel a job: its samples end, its calls are parked, what is in flight may still end.

Nothing of a cancelling job is advanced or claimed. Its samples end in batches: the first with the cancel itself, the
others by whoever finalises the job (`ending.step`), in whatever process. Calls belong to no job, so they are not
cancelled: those that nobody else waits for leave the queue.
"""

import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.runtime.control import locked, refusal
from shared.runtime.parking import park
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.states import RUNNABLE

CANCEL = text("UPDATE jobs SET state = 'cancelling', version = version + 1 WHERE id = :job")
CANCEL_ALL = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM jobs WHERE public_id = ANY(:jobs) AND state = ANY(:cancellable) ORDER BY id FOR NO KEY UPDATE)
    UPDATE jobs j SET state = 'cancelling', version = version + 1 FROM live WHERE j.id = live.id RETURNING j.id""")
CANCEL_SAMPLES = sql("""
    WITH batch AS MATERIALIZED (SELECT id FROM samples WHERE job_id = ANY(:jobs) AND state IN {LIVE} LIMIT :n),
    live AS MATERIALIZED (
        SELECT s.id FROM samples s WHERE s.id = ANY(ARRAY(SELECT id FROM batch)) AND s.state IN {LIVE}
        ORDER BY s.id FOR NO KEY UPDATE)
    UPDATE samples s SET state = {CANCELLED}, ended_at = clock_timestamp() FROM live WHERE s.id = live.id
    RETURNING s.id""")
CANCELLED = sql("SELECT id FROM samples WHERE job_id = :job AND state = {CANCELLED} LIMIT :n")
BATCH = 2000
"""Samples that end in one transaction."""

CANCELLABLE = RUNNABLE | {"paused"}


async def cancel(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Cancel the job, paused or not; again is harmless.

    Raises:
        NotFound: no such job.
        Conflict: it has completed or failed, or has nothing left to cancel.
        PreconditionFailed: it is at none of `versions`.
    """
    async with database.transaction() as connection:
        job = await locked(connection, public_id, versions)
        if job.state in CANCELLABLE:
            await connection.execute(CANCEL, {"job": job.id})
        elif job.state not in ("cancelling", "cancelled"):
            raise refusal(public_id, job.state, "cancelled")
        await _end_batch(connection, [job.id])
        # Those of an earlier cancel, too: its process may have died before it parked them.
        ended = (await connection.execute(CANCELLED, {"job": job.id, "n": BATCH})).scalars().all()
    await park(database, ended)


async def cancel_all(database: Database, public_ids: Sequence[uuid.UUID]) -> None:
    """Cancel those of the jobs that can be, at one moment; the others stay as they are."""
    async with database.transaction() as connection:
        values = {"jobs": list(public_ids), "cancellable": sorted(CANCELLABLE)}
        cancelled = list((await connection.execute(CANCEL_ALL, values)).scalars())
        ended = await _end_batch(connection, cancelled)
    await park(database, ended)


async def cancel_samples(database: Database, job: int) -> int:
    """End the next batch of a cancelling job's samples, and park what they waited for; returns how many ended."""
    async with database.transaction() as connection:
        ended = await _end_batch(connection, [job])
    await park(database, ended)
    return len(ended)


async def _end_batch(connection: AsyncConnection, jobs: Sequence[int]) -> Sequence[int]:
    return (await connection.execute(CANCEL_SAMPLES, {"jobs": jobs, "n": BATCH})).scalars().all()
