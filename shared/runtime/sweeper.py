"""The sweeper: everything that a crash or a lost message may have left undone, found from the rows alone."""

from sqlalchemy import text

from shared.contracts.calls import Lane
from shared.runtime.lapses import lapse_expired
from shared.runtime.look import look_everywhere, revive_everywhere
from shared.runtime.parking import park_idle
from shared.storage.database import Database
from shared.storage.sql import sql

PENDING_LANES = text("SELECT DISTINCT lane FROM queue WHERE token IS NULL")
# A calibration that has ended is work, too: its job's samples are about to come.
# From the live jobs: samples of a paused or cancelled one may be ready in their hundreds of thousands.
READY = sql("""
    SELECT EXISTS (SELECT 1 FROM jobs j WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE}
                   AND EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state = {READY} OFFSET 0))
        OR EXISTS (SELECT 1 FROM jobs j JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare' AND s.state IN {DONE}
                   WHERE j.state = 'preparing')""")


async def sweep(database: Database, worker: str) -> set[Lane]:
    """Lapse dead claims, look at every waiting sample, park and revive calls as they are wanted.

    Returns the lanes that want a tick.
    """
    await lapse_expired(database, worker)
    await look_everywhere(database)
    await park_idle(database)
    await revive_everywhere(database)
    return await lanes_with_work(database)


async def lanes_with_work(database: Database) -> set[Lane]:
    """Lanes with a pending call; a ready sample is work for the judge's lane, whose worker advances it."""
    async with database.transaction() as connection:
        lanes = {Lane(lane) for lane in (await connection.execute(PENDING_LANES)).scalars()}
        return lanes | ({Lane.JUDGE} if (await connection.execute(READY)).scalar() else set())
