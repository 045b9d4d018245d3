"""Cancel a job: its samples end at once, its calls are parked, what is in flight may still end.

Calls belong to no job, so they are not cancelled: those that nobody else waits for leave the queue.
"""

import uuid

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, NotFound
from shared.runtime.parking import park_cancelled
from shared.storage.database import Database

CANCEL = text("""
    UPDATE jobs SET state = 'cancelling', version = version + 1
    WHERE public_id = :job AND state IN ('preparing', 'running') RETURNING id""")
STATE = text("SELECT id, state FROM jobs WHERE public_id = :job")
CANCEL_SAMPLES = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM samples WHERE job_id = :job AND state IN (0, 1) ORDER BY id FOR NO KEY UPDATE)
    UPDATE samples s SET state = 4, ended_at = clock_timestamp() FROM live WHERE s.id = live.id""")


async def cancel(database: Database, public_id: uuid.UUID) -> None:
    """Cancel the job; again is harmless.

    Raises:
        NotFound: no such job.
        Conflict: it has completed or failed.
    """
    async with database.transaction() as connection:
        job = (await connection.execute(CANCEL, {"job": public_id})).scalar()
        if job is None:
            job = await _cancelled_before(connection, public_id)
        await connection.execute(CANCEL_SAMPLES, {"job": job})
    await park_cancelled(database)


async def _cancelled_before(connection: AsyncConnection, public_id: uuid.UUID) -> int:
    row = (await connection.execute(STATE, {"job": public_id})).first()
    if row is None:
        raise NotFound(f"no job {public_id}", hint="mathrag job list")
    if row.state not in ("cancelling", "cancelled"):
        raise Conflict(f"job {public_id} has {row.state}; only a live job can be cancelled")
    return int(row.id)
