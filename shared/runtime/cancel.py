"""Cancel a job: its samples end, its calls are parked, and calls in flight may still finish.

A cancelling job is neither advanced nor claimed. Its samples end in batches: the first with the cancel itself, the
others by whichever process ends the job (`ending.end_job_step`). Calls belong to no job, so they are not cancelled;
those that no other job waits for leave the queue.
"""

import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.runtime.job_lock import lock_job, state_conflict
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
"""Samples ended in one transaction."""

CANCELLABLE = RUNNABLE | {"paused"}


async def cancel(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Cancel the job, paused or not; cancelling it again has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has completed or failed, or has nothing left to cancel.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state in CANCELLABLE:
            await connection.execute(CANCEL, {"job": job.id})
        elif job.state not in ("cancelling", "cancelled"):
            raise state_conflict(public_id, job.state, "cancelled")
        await _end_batch(connection, [job.id])
        # Include samples of an earlier cancel: its process may have died before it parked their calls.
        ended = (await connection.execute(CANCELLED, {"job": job.id, "n": BATCH})).scalars().all()
    await park(database, ended)


async def cancel_all(database: Database, public_ids: Sequence[uuid.UUID]) -> None:
    """Cancel the cancellable ones of these jobs in one transaction; leave the others unchanged."""
    async with database.transaction() as connection:
        values = {"jobs": list(public_ids), "cancellable": sorted(CANCELLABLE)}
        cancelled = list((await connection.execute(CANCEL_ALL, values)).scalars())
        ended = await _end_batch(connection, cancelled)
    await park(database, ended)


async def cancel_samples(database: Database, job: int) -> int:
    """End the next batch of a cancelling job's samples and park their calls; return how many samples ended."""
    async with database.transaction() as connection:
        ended = await _end_batch(connection, [job])
    await park(database, ended)
    return len(ended)


async def _end_batch(connection: AsyncConnection, jobs: Sequence[int]) -> Sequence[int]:
    return (await connection.execute(CANCEL_SAMPLES, {"jobs": jobs, "n": BATCH})).scalars().all()
