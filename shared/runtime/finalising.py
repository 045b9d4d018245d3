"""Finalising: the records of a job's samples are chained a batch at a time, then it ends.

Any process may do it, and another one goes on where it was killed: every transaction begins where the last committed
link is, and the job ends in the transaction of its last links. An advisory lock keeps two from doing the same work.
"""

from enum import StrEnum

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.records import chained, genesis
from shared.storage import records
from shared.storage.database import Database

BATCH = 200
"""Samples a transaction: short, and small in memory, whatever the job's size."""
SEAL_LOCK = 7332
"""Advisory lock class: one process at a time chains a job."""

# A transaction that waited would only find that there is nothing left to do.
TRY = text("SELECT pg_try_advisory_xact_lock(:class, CAST(:job AS integer))")
END = text("""
    UPDATE jobs SET state = CASE state WHEN 'finalizing' THEN 'completed' ELSE 'cancelled' END, chain = :chain,
        reason = NULL,
        ended_at = clock_timestamp(), version = version + 1
    WHERE id = :job AND ended_at IS NULL AND state IN ('finalizing', 'cancelling') RETURNING id""")


class Step(StrEnum):
    """What became of one step on a job's way to its end."""

    WAITS = "waits"
    """Nothing can be done now, or another process does it."""
    MOVED = "moved"
    """There is more to do at once."""
    ENDED = "ended"


async def finalise(database: Database, job: int) -> Step:
    """Chain the next batch of a job that has no live sample; with the last one it ends."""
    async with database.transaction() as connection:
        if not (await connection.execute(TRY, {"class": SEAL_LOCK, "job": job})).scalar():
            return Step.WAITS
        chain = await _chain_next(connection, job)
        if chain is None:
            return Step.MOVED
        ended = (await connection.execute(END, {"job": job, "chain": chain})).first()
        return Step.WAITS if ended is None else Step.ENDED


async def _chain_next(connection: AsyncConnection, job: int) -> bytes | None:
    """Write the next links; the chain's last hash if there are no more to come."""
    before = await records.sealed(connection, job)
    sequence, head = (before.sequence, before.hash) if before else (0, await empty_chain(connection, job))
    batch = await records.sample_records(connection, job, before.after if before else records.START, BATCH)
    links = list(chained((record for _, record in batch), sequence, head))
    if links:
        await records.insert(connection, job, [sample for sample, _ in batch], links)
    if len(batch) == BATCH:
        return None
    return links[-1].hash if links else head


async def empty_chain(connection: AsyncConnection, job: int) -> bytes:
    """The chain of a job without samples: the hash of its own record."""
    return genesis(await records.job_record(connection, job))
