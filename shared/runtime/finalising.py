"""Finalise a job: chain the records of its samples batch by batch, then end the job.

Any process may do this, and another one continues after a kill: each transaction starts at the last committed link,
and the job ends in the transaction of its last links. An advisory lock prevents duplicate work.
"""

from enum import StrEnum

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.records import chain_records, genesis
from shared.storage import records
from shared.storage.database import Database

BATCH = 200
"""Samples per transaction, which keeps transactions short and memory small for jobs of any size."""
SEAL_LOCK = 7332
"""Advisory lock class; one process at a time chains a job."""

# Waiting for the lock is useless: the holder does the work.
TRY = text("SELECT pg_try_advisory_xact_lock(:class, CAST(:job AS integer))")
END = text("""
    UPDATE jobs SET state = CASE state WHEN 'finalizing' THEN 'completed' ELSE 'cancelled' END, chain = :chain,
        reason = NULL,
        ended_at = clock_timestamp(), version = version + 1
    WHERE id = :job AND ended_at IS NULL AND state IN ('finalizing', 'cancelling') RETURNING id""")


class EndStep(StrEnum):
    """Result of one step towards a job's end."""

    WAITS = "waits"
    """Nothing can be done now, or another process is doing it."""
    MOVED = "moved"
    """The next step can follow at once."""
    ENDED = "ended"


async def finalise(database: Database, job: int) -> EndStep:
    """Chain the next batch of a job without live samples; the last batch ends the job."""
    async with database.transaction() as connection:
        if not (await connection.execute(TRY, {"class": SEAL_LOCK, "job": job})).scalar():
            return EndStep.WAITS
        chain = await _chain_next(connection, job)
        if chain is None:
            return EndStep.MOVED
        ended = (await connection.execute(END, {"job": job, "chain": chain})).first()
        return EndStep.WAITS if ended is None else EndStep.ENDED


async def _chain_next(connection: AsyncConnection, job: int) -> bytes | None:
    """Write the next links; return the chain's last hash after the final ones, else None."""
    before = await records.find_chain_end(connection, job)
    sequence, head = (before.sequence, before.hash) if before else (0, await make_empty_chain(connection, job))
    batch = await records.load_sample_records(connection, job, before.after if before else records.START, BATCH)
    links = list(chain_records((record for _, record in batch), sequence, head))
    if links:
        await records.insert_links(connection, job, [sample for sample, _ in batch], links)
    if len(batch) == BATCH:
        return None
    return links[-1].hash if links else head


async def make_empty_chain(connection: AsyncConnection, job: int) -> bytes:
    """Return the chain of a job without samples, which is the hash of the job's record."""
    return genesis(await records.load_job_record(connection, job))
