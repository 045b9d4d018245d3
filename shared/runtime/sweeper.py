"""The sweeper: complete whatever a crash or a lost message may have left undone, found from the rows alone."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.plugins.loading import encode_usable_pins
from shared.runtime.lapses import lapse_expired
from shared.runtime.parking import park_idle
from shared.runtime.readiness import mark_all_ready_samples, revive_all_calls
from shared.storage.database import Database
from shared.storage.sql import sql

PENDING_LANES = text("SELECT DISTINCT lane FROM queue WHERE token IS NULL")
# An ended calibration is work, too: its job's samples must be inserted.
# Starts from live jobs, because a paused or cancelled job may have hundreds of thousands of ready samples.
READY = sql("""
    SELECT EXISTS (SELECT 1 FROM jobs j WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE} AND {HAS_PLUGINS}
                   AND EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state = {READY} OFFSET 0))
        OR EXISTS (SELECT 1 FROM jobs j JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare' AND s.state IN {DONE}
                   WHERE j.state = 'preparing')""")


async def any_ready(connection: AsyncConnection) -> bool:
    """Tell whether a sample can be advanced, or a job's samples are about to come."""
    return bool((await connection.execute(READY, {"plugins": encode_usable_pins()})).scalar())


async def sweep(database: Database, worker: str) -> set[Lane]:
    """Lapse dead claims, mark complete samples ready, and park and revive calls as needed.

    Returns the lanes that need a tick.
    """
    await lapse_expired(database, worker)
    await mark_all_ready_samples(database)
    await park_idle(database)
    await revive_all_calls(database)
    return await lanes_with_work(database)


async def lanes_with_work(database: Database) -> set[Lane]:
    """Return the lanes with pending calls; a ready sample counts for the judge's lane, whose worker advances it."""
    async with database.transaction() as connection:
        lanes = {Lane(lane) for lane in (await connection.execute(PENDING_LANES)).scalars()}
        return lanes | ({Lane.JUDGE} if await any_ready(connection) else set())
