"""Cancel a job: its samples end at once, its calls are parked, what is in flight may still end.

Calls belong to no job, so they are not cancelled: those that nobody else waits for leave the queue.
"""

import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import text

from shared.runtime.control import RUNNABLE, locked, refusal
from shared.runtime.parking import park_idle
from shared.storage.database import Database

CANCEL = text("UPDATE jobs SET state = 'cancelling', version = version + 1 WHERE id = :job")
CANCEL_ALL = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM jobs WHERE public_id = ANY(:jobs) AND state = ANY(:cancellable) ORDER BY id FOR NO KEY UPDATE)
    UPDATE jobs j SET state = 'cancelling', version = version + 1 FROM live WHERE j.id = live.id RETURNING j.id""")
CANCEL_SAMPLES = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM samples WHERE job_id = ANY(:jobs) AND state IN (0, 1) ORDER BY id FOR NO KEY UPDATE)
    UPDATE samples s SET state = 4, ended_at = clock_timestamp() FROM live WHERE s.id = live.id""")

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
        await connection.execute(CANCEL_SAMPLES, {"jobs": [job.id]})
    await park_idle(database)


async def cancel_all(database: Database, public_ids: Sequence[uuid.UUID]) -> None:
    """Cancel those of the jobs that can be, at one moment; the others stay as they are."""
    async with database.transaction() as connection:
        values = {"jobs": list(public_ids), "cancellable": sorted(CANCELLABLE)}
        cancelled = list((await connection.execute(CANCEL_ALL, values)).scalars())
        await connection.execute(CANCEL_SAMPLES, {"jobs": cancelled})
    await park_idle(database)
