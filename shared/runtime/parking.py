"""Park calls that no live sample waits for: they leave the queue until `readiness.revive_calls` queues them again."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, text

from shared.runtime.readiness import revive_calls
from shared.storage.database import Database
from shared.storage.sql import fill_names, sql

# Whether a live sample waits for call u.id. OFFSET 0 keeps the planner on the indexes, whatever its statistics are.
WANTED = fill_names("""EXISTS (
        SELECT 1 FROM steps t,
            LATERAL (SELECT s.job_id FROM samples s
                     WHERE {WAITS_FOR_STEP} OFFSET 0) s,
            LATERAL (SELECT 1 FROM jobs j WHERE j.id = s.job_id AND j.state IN {RUNNABLE} OFFSET 0) j
        WHERE t.call_id = u.id)""")
PARK = text(f"""
    DELETE FROM queue q USING unnest(CAST(:calls AS bigint[])) u(id)
    WHERE q.call_id = u.id AND q.token IS NULL AND NOT {WANTED} RETURNING q.call_id""")  # noqa: S608 - constants
# Calls for which samples of a cancelling job waited, and for which samples of a paused job wait.
PENDING = sql("""
    SELECT q.call_id FROM samples s
    JOIN jobs j ON j.id = s.job_id AND j.ended_at IS NULL
        AND s.state = CASE j.state WHEN 'paused' THEN {WAITING} WHEN 'cancelling' THEN {CANCELLED} END
    JOIN steps t ON {AWAITED_BY_SAMPLE}
    JOIN queue q ON q.call_id = t.call_id AND q.token IS NULL
    WHERE s.id = ANY(:samples) ORDER BY q.call_id FOR UPDATE OF q SKIP LOCKED""")
IDLE = text("SELECT id FROM jobs WHERE ended_at IS NULL AND state IN ('cancelling', 'paused') ORDER BY id")
# Follows the index of the samples' key, so that a job of any size is scanned once.
WALK = text("""
    SELECT id, kind, ordinal, repeat FROM samples
    WHERE job_id = :job AND (kind, ordinal, repeat) > (:kind, :ordinal, :repeat)
    ORDER BY kind, ordinal, repeat LIMIT :n""")
BATCH = 2000
"""Samples whose calls are parked in one transaction."""


async def park_idle(database: Database) -> None:
    """Park the pending calls of paused and cancelling jobs, except those that a live sample waits for."""
    async with database.statement() as connection:
        jobs = list((await connection.execute(IDLE)).scalars())
    for job in jobs:
        await park_job(database, job)


async def park_job(database: Database, job: int) -> None:
    """Park the pending calls of one job in batches, each in a transaction of its own."""
    values = {"job": job, "kind": "", "ordinal": -1, "repeat": -1, "n": BATCH}
    rows = await _walk(database, values)
    while rows:
        await park(database, [row.id for row in rows])
        values |= {"kind": rows[-1].kind, "ordinal": rows[-1].ordinal, "repeat": rows[-1].repeat}
        rows = await _walk(database, values) if len(rows) == BATCH else []


async def park(database: Database, samples: Sequence[int]) -> None:
    """Park the pending calls of these samples."""
    async with database.transaction() as connection:
        pending = list((await connection.execute(PENDING, {"samples": sorted(samples)})).scalars())
        parked = list((await connection.execute(PARK, {"calls": pending})).scalars()) if pending else []
    # A sample may have started to wait for a call while it was being parked, so check after the commit.
    await revive_calls(database, parked)


async def _walk(database: Database, values: Mapping[str, object]) -> Sequence[Row[Any]]:
    async with database.statement() as connection:
        return (await connection.execute(WALK, values)).all()
