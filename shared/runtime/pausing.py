"""Pause and resume jobs. A paused job is neither advanced nor claimed; calls in flight may still finish.

Calls belong to no job: those that no other job waits for leave the queue and return to it when the job resumes.
"""

import uuid
from collections.abc import Collection

from sqlalchemy import text

from shared.runtime.job_lock import lock_job, state_conflict
from shared.runtime.parking import park_job
from shared.runtime.readiness import revive_calls
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.states import RUNNABLE

PAUSE = text("UPDATE jobs SET state = 'paused', version = version + 1 WHERE id = :job")
# An advance that holds ready samples is about to commit calls: wait for it, so that they are parked, too.
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
"""Calls queued again in one transaction."""


async def pause(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Pause the job; pausing it again has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state in RUNNABLE:
            await connection.execute(PAUSE, {"job": job.id})
            await connection.execute(AWAIT_ADVANCE, {"job": job.id})
        elif job.state != "paused":
            raise state_conflict(public_id, job.state, "paused")
    await park_job(database, job.id)


async def resume(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Resume a paused job; resuming a job that is not paused has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state == "paused":
            await connection.execute(RESUME, {"job": job.id})
        elif job.state not in RUNNABLE:
            raise state_conflict(public_id, job.state, "resumed")
    await _revive(database, job.id)


async def _revive(database: Database, job: int) -> None:
    async with database.transaction() as connection:
        parked = list((await connection.execute(PARKED, {"job": job})).scalars())
    for start in range(0, len(parked), BATCH):
        await revive_calls(database, parked[start : start + BATCH])
