"""Pause a job and let it go on. Meanwhile nothing of it is advanced or claimed; what is in flight may still end.

Calls belong to no job: those that nobody else waits for leave the queue, and come back when the job goes on.
"""

import uuid
from collections.abc import Collection

from sqlalchemy import text

from shared.runtime.control import locked, refusal
from shared.runtime.look import revive
from shared.runtime.parking import park_job
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.states import RUNNABLE

PAUSE = text("UPDATE jobs SET state = 'paused', version = version + 1 WHERE id = :job")
# An advance that holds ready samples is about to commit calls: wait for it, so that these are parked, too.
AWAIT_ADVANCE = sql("SELECT id FROM samples WHERE job_id = :job AND state = {READY} ORDER BY id FOR NO KEY UPDATE")
RESUME = text("""
    UPDATE jobs SET state = CASE WHEN running_at IS NULL THEN 'preparing' ELSE 'running' END, version = version + 1
    WHERE id = :job""")
PARKED = sql("""
    SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
    WHERE s.job_id = :job AND s.state = {WAITING}
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = t.call_id)
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id)
    ORDER BY 1""")
BATCH = 5000
"""Calls that come back in one transaction."""


async def pause(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Pause the job; again is harmless.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: it is at none of `versions`.
    """
    async with database.transaction() as connection:
        job = await locked(connection, public_id, versions)
        if job.state in RUNNABLE:
            await connection.execute(PAUSE, {"job": job.id})
            await connection.execute(AWAIT_ADVANCE, {"job": job.id})
        elif job.state != "paused":
            raise refusal(public_id, job.state, "paused")
    await park_job(database, job.id)


async def resume(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Let a paused job go on where it was; a job that goes on anyway stays as it is.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: it is at none of `versions`.
    """
    async with database.transaction() as connection:
        job = await locked(connection, public_id, versions)
        if job.state == "paused":
            await connection.execute(RESUME, {"job": job.id})
        elif job.state not in RUNNABLE:
            raise refusal(public_id, job.state, "resumed")
    await _revive(database, job.id)


async def _revive(database: Database, job: int) -> None:
    async with database.transaction() as connection:
        parked = list((await connection.execute(PARKED, {"job": job})).scalars())
    for start in range(0, len(parked), BATCH):
        await revive(database, parked[start : start + BATCH])
