"""Mark samples ready: write, commit, then derive readiness, never inside the transaction that may have caused it.

Every statement here is idempotent, so the sweeper runs the same ones without a filter. Each runs in a transaction of
its own: of two writers that cannot see each other's uncommitted rows, the one that commits last sees both.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database
from shared.storage.sql import fill_names, sql
from shared.storage.states import SampleState

# A sample is locked only if it has all replies in a snapshot that is younger than the commit before this statement, so
# the last of several replies finds it, whatever the others saw. Comparing the position prevents a decision about a
# later wait of the same sample after the lock had to be waited for.
# OFFSET 0 and ANY keep the planner on the samples' key; otherwise it scans all waiting samples for each one.
MARK_READY = fill_names("""
    , complete AS MATERIALIZED (
        SELECT w.id, w.position FROM waiting w, LATERAL (
            SELECT 1 FROM samples s WHERE s.id = w.id AND s.position = w.position AND s.state = {WAITING} OFFSET 0) s
        WHERE NOT EXISTS (
            SELECT 1 FROM steps t WHERE t.sample_id = w.id AND t.position = w.position - 1
            AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id))),
    ready AS MATERIALIZED (
        SELECT s.id FROM samples s WHERE s.id = ANY(ARRAY(SELECT id FROM complete)) AND s.state = {WAITING}
            AND EXISTS (SELECT 1 FROM complete c WHERE c.id = s.id AND c.position = s.position)
        ORDER BY s.id FOR NO KEY UPDATE)
    UPDATE samples s SET state = {READY} FROM ready WHERE s.id = ready.id RETURNING s.id""")
LOOK = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT DISTINCT sample_id AS id, position + 1 AS position FROM steps
        WHERE call_id = ANY(:calls)){MARK_READY}""")  # noqa: S608 - constants
LOOK_AT = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT id, position FROM samples WHERE id = ANY(:ids) AND state = {SampleState.WAITING}){MARK_READY}""")  # noqa: S608
COMPLETE = sql("""
    SELECT s.id FROM jobs j JOIN samples s ON s.job_id = j.id AND s.state = {WAITING}
    WHERE j.state IN {RUNNABLE} AND NOT EXISTS (
        SELECT 1 FROM steps t WHERE {AWAITED_BY_SAMPLE}
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id))
    ORDER BY s.id LIMIT 1000""")

# A call without a queue row and without an accepted attempt was parked; a live waiter revives it. Lapses are counted
# from the attempts, so parking does not clear the record of a suspect.
REVIVE = sql("""
    INSERT INTO queue (lane, model_id, place, call_id, lapses)
    SELECT c.lane, c.model_id, w.place, c.id,
           (SELECT count(*) FROM attempts a WHERE a.call_id = c.id AND NOT a.accepted AND a.outcome = 'lapsed')
    FROM calls c, LATERAL (
        SELECT min({PLACE}) AS place
        FROM steps t JOIN samples s ON {WAITS_FOR_STEP}
        JOIN jobs j ON j.id = s.job_id AND j.state IN {RUNNABLE} WHERE t.call_id = c.id) w
    WHERE c.id = ANY(:calls) AND NOT c.failed AND w.place IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} c.id)
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = c.id)
    ORDER BY c.id
    ON CONFLICT (call_id) DO NOTHING RETURNING call_id""")
ORPHANS = sql("""
    SELECT DISTINCT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id AND s.state = {WAITING}
    JOIN steps t ON {AWAITED_BY_SAMPLE}
    WHERE j.state IN {RUNNABLE}
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = t.call_id)
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id)
    ORDER BY 1 LIMIT 1000""")


async def mark_ready_samples(database: Database, calls: Sequence[int]) -> list[int]:
    """Mark the samples ready that wait for any of `calls` and have all replies; return their ids."""
    async with database.statement() as connection:
        return list((await connection.execute(LOOK, {"calls": sorted(calls)})).scalars())


async def mark_ready_among(database: Database, samples: Sequence[int]) -> list[int]:
    """Mark those of `samples` ready that have all replies, after an advance has recorded what they wait for."""
    async with database.statement() as connection:
        return list((await connection.execute(LOOK_AT, {"ids": sorted(samples)})).scalars())


async def find_complete_samples(connection: AsyncConnection) -> list[int]:
    """Return samples, at most 1,000, that have all replies and are not marked ready yet: a process is about to mark
    them, or died before it did.
    """
    return list((await connection.execute(COMPLETE)).scalars())


async def mark_all_ready_samples(database: Database) -> None:
    """Mark samples ready whose last reply was committed by a process that died before it marked them."""
    async with database.transaction() as connection:
        complete = await find_complete_samples(connection)
    if complete:
        await mark_ready_among(database, complete)


async def revive_calls(database: Database, calls: Sequence[int]) -> list[int]:
    """Queue those of `calls` again that are parked although a live sample waits for them, in its place."""
    if not calls:
        return []
    async with database.transaction() as connection:
        return list((await connection.execute(REVIVE, {"calls": sorted(calls)})).scalars())


async def revive_all_calls(database: Database) -> list[int]:
    """Queue all parked calls again that a live sample waits for."""
    async with database.transaction() as connection:
        orphans = list((await connection.execute(ORPHANS)).scalars())
    return await revive_calls(database, orphans)
