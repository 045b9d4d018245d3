"""Cancel a job: its samples end at once, its calls are parked, what is in flight may still end.

Calls belong to no job, so they are not cancelled: those that nobody else waits for leave the queue.
"""

import uuid
from collections.abc import Collection

from sqlalchemy import text

from shared.runtime.control import RUNNABLE, locked, refusal
from shared.runtime.parking import park_idle
from shared.storage.database import Database

CANCEL = text("UPDATE jobs SET state = 'cancelling', version = version + 1 WHERE id = :job")
CANCEL_SAMPLES = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM samples WHERE job_id = :job AND state IN (0, 1) ORDER BY id FOR NO KEY UPDATE)
    UPDATE samples s SET state = 4, ended_at = clock_timestamp() FROM live WHERE s.id = live.id""")


async def cancel(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Cancel the job, paused or not; again is harmless.

    Raises:
        NotFound: no such job.
        Conflict: it has completed or failed, or has nothing left to cancel.
        PreconditionFailed: it is at none of `versions`.
    """
    async with database.transaction() as connection:
        job = await locked(connection, public_id, versions)
        if job.state in RUNNABLE | {"paused"}:
            await connection.execute(CANCEL, {"job": job.id})
        elif job.state not in ("cancelling", "cancelled"):
            raise refusal(public_id, job.state, "cancelled")
        await connection.execute(CANCEL_SAMPLES, {"job": job.id})
    await park_idle(database)
