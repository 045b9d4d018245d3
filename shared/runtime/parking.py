"""Parking: calls that no live sample waits for leave the queue; a new waiter revives them (`look.revive`)."""

from sqlalchemy import text

from shared.runtime.look import revive
from shared.storage.database import Database

# Whether a live sample waits for call u.id. OFFSET 0 keeps the planner on the indexes whatever its statistics say.
WANTED = """EXISTS (
        SELECT 1 FROM steps t,
            LATERAL (SELECT s.job_id FROM samples s
                     WHERE s.id = t.sample_id AND s.state = 1 AND s.position = t.position + 1 OFFSET 0) s,
            LATERAL (SELECT 1 FROM jobs j WHERE j.id = s.job_id AND j.state IN ('preparing', 'running') OFFSET 0) j
        WHERE t.call_id = u.id)"""
PARK = text(f"""
    DELETE FROM queue q USING unnest(CAST(:calls AS bigint[])) u(id)
    WHERE q.call_id = u.id AND q.token IS NULL AND NOT {WANTED} RETURNING q.call_id""")  # noqa: S608 - constants
# What samples of a cancelling job waited for, and what those of a paused one wait for.
PENDING = text("""
    SELECT q.call_id FROM jobs j
    JOIN samples s ON s.job_id = j.id AND s.state = CASE j.state WHEN 'paused' THEN 1 ELSE 4 END
    JOIN steps t ON t.sample_id = s.id AND t.position = s.position - 1
    JOIN queue q ON q.call_id = t.call_id AND q.token IS NULL
    WHERE j.ended_at IS NULL AND j.state IN ('cancelling', 'paused') ORDER BY q.call_id FOR UPDATE OF q SKIP LOCKED""")


async def park_idle(database: Database) -> None:
    """Take the pending calls of paused and cancelling jobs out of the queue, but for those that a live sample wants."""
    async with database.transaction() as connection:
        pending = list((await connection.execute(PENDING)).scalars())
        parked = list((await connection.execute(PARK, {"calls": pending})).scalars()) if pending else []
    # A waiter may have come while the calls were being parked: look after the commit.
    await revive(database, parked)
