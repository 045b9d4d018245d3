"""Write, commit, then look: readiness is derived after the commit that may have caused it, never inside it.

Every statement here is idempotent, so the sweeper runs the same ones without a filter. Each `look` is its own
transaction: two writers that cannot see each other's uncommitted rows each look after their own commit, and at
least one of them sees both.
"""

from collections.abc import Sequence

from sqlalchemy import text

from shared.storage.database import Database

LOCK_WAITERS = text(
    "SELECT id FROM samples WHERE state = 1 AND id IN (SELECT sample_id FROM steps WHERE call_id = ANY(:calls))"
    " ORDER BY id FOR NO KEY UPDATE"
)
LOCK_SAMPLES = text("SELECT id FROM samples WHERE state = 1 AND id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE")
# A statement of its own: its snapshot is younger than the locks, so it sees every reply committed before them.
MAKE_READY = text("""
    UPDATE samples s SET state = 0
    WHERE s.id = ANY(:ids) AND s.state = 1 AND NOT EXISTS (
        SELECT 1 FROM steps t WHERE t.sample_id = s.id AND t.position = s.position - 1
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.call_id = t.call_id AND a.accepted))
    RETURNING s.id""")
OVERLOOKED = text("""
    SELECT s.id FROM jobs j JOIN samples s ON s.job_id = j.id AND s.state = 1
    WHERE j.state IN ('preparing', 'running') AND NOT EXISTS (
        SELECT 1 FROM steps t WHERE t.sample_id = s.id AND t.position = s.position - 1
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.call_id = t.call_id AND a.accepted))
    ORDER BY s.id LIMIT 1000""")

# A call without a queue row and without an accepted attempt was parked; a live waiter brings it back. Lapses are
# counted from the attempts, so parking does not clear a poisonous call's record.
REVIVE = text("""
    INSERT INTO queue (lane, model_id, rank, call_id, lapses)
    SELECT c.lane, c.model_id, w.rank, c.id,
           (SELECT count(*) FROM attempts a WHERE a.call_id = c.id AND NOT a.accepted AND a.outcome = 'lapsed')
    FROM calls c, LATERAL (
        SELECT min(j.rank) AS rank
        FROM steps t JOIN samples s ON s.id = t.sample_id AND s.state = 1 AND s.position = t.position + 1
        JOIN jobs j ON j.id = s.job_id AND j.state IN ('preparing', 'running') WHERE t.call_id = c.id) w
    WHERE c.id = ANY(:calls) AND NOT c.failed AND w.rank IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.call_id = c.id AND a.accepted)
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = c.id)
    ORDER BY c.id
    ON CONFLICT (call_id) DO NOTHING RETURNING call_id""")
ORPHANS = text("""
    SELECT DISTINCT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id AND s.state = 1
    JOIN steps t ON t.sample_id = s.id AND t.position = s.position - 1
    WHERE j.state IN ('preparing', 'running')
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = t.call_id)
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.call_id = t.call_id AND a.accepted)
    ORDER BY 1 LIMIT 1000""")


async def look(database: Database, calls: Sequence[int]) -> list[int]:
    """Make ready the samples that wait for any of `calls` and lack no reply; returns their ids."""
    async with database.transaction() as connection:
        ids = list((await connection.execute(LOCK_WAITERS, {"calls": sorted(calls)})).scalars())
        return list((await connection.execute(MAKE_READY, {"ids": ids})).scalars()) if ids else []


async def look_at(database: Database, samples: Sequence[int]) -> list[int]:
    """The same for given samples: what an advance does after it has recorded what they wait for."""
    async with database.transaction() as connection:
        ids = list((await connection.execute(LOCK_SAMPLES, {"ids": sorted(samples)})).scalars())
        return list((await connection.execute(MAKE_READY, {"ids": ids})).scalars()) if ids else []


async def look_everywhere(database: Database) -> list[int]:
    """The sweeper's look: samples that some dead process committed for but never looked at."""
    async with database.transaction() as connection:
        overlooked = list((await connection.execute(OVERLOOKED)).scalars())
    return await look_at(database, overlooked) if overlooked else []


async def revive(database: Database, calls: Sequence[int]) -> list[int]:
    """Queue again those of `calls` that are parked although a live sample waits for them, as its job ranks."""
    if not calls:
        return []
    async with database.transaction() as connection:
        return list((await connection.execute(REVIVE, {"calls": sorted(calls)})).scalars())


async def revive_everywhere(database: Database) -> list[int]:
    """The sweeper's revival."""
    async with database.transaction() as connection:
        orphans = list((await connection.execute(ORPHANS)).scalars())
    return await revive(database, orphans)
