"""Purge jobs as the database's owner: the application's role may not delete. Each transaction is short.

A row in `operations` is committed before anything is deleted. Repeating a purge that was killed completes it.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import text

from shared.errors import Conflict
from shared.runtime.retention import deletion_transaction
from shared.storage import jobs, operations
from shared.storage.database import Database
from shared.storage.states import TERMINAL

BATCH = 1000
"""Samples per transaction."""

# The jobs of a batch stay until its files are written.
AWAITED = text("""
    SELECT j.name, j.public_id, b.state FROM jobs j JOIN batch_jobs k ON k.job = j.public_id
    JOIN batches b ON b.id = k.batch_id WHERE j.id = ANY(:jobs) AND b.ended_at IS NULL ORDER BY j.id""")
# Newest first, so that the first ones are kept. Online questions are kept as long as other jobs.
CHOOSE = text("""
    SELECT id FROM (SELECT j.id, j.public_id, j.ended_at, row_number() OVER (ORDER BY j.id DESC) AS newest
                    FROM jobs j WHERE j.ended_at IS NOT NULL AND (j.online OR NOT :online)) j
    WHERE j.newest > :keep AND j.ended_at < COALESCE(CAST(:before AS timestamptz), 'infinity') AND NOT EXISTS (
        SELECT FROM batch_jobs k JOIN batches b ON b.id = k.batch_id AND b.ended_at IS NULL WHERE k.job = j.public_id)
    ORDER BY id""")
CONTENT = text("""
    SELECT j.id, j.public_id::text AS job, j.name, j.state, encode(j.chain, 'hex') AS chain, j.ended_at,
        (SELECT count(*) FROM samples s WHERE s.job_id = j.id) AS samples,
        (SELECT count(*) FROM samples s JOIN steps t ON t.sample_id = s.id WHERE s.job_id = j.id) AS steps,
        (SELECT count(*) FROM samples s JOIN outcomes o ON o.sample_id = s.id WHERE s.job_id = j.id) AS outcomes,
        (SELECT count(*) FROM records r WHERE r.job_id = j.id) AS records,
        (SELECT count(*) FROM job_events e WHERE e.job_id = j.id) AS events,
        (SELECT count(*) FROM idempotency k WHERE k.job_id = j.id) AS idempotency_keys
    FROM jobs j WHERE j.id = ANY(:jobs) ORDER BY j.id""")
SAMPLES = text("SELECT id FROM samples WHERE job_id = :job ORDER BY id LIMIT :n")
OF_SAMPLES = (
    text("DELETE FROM records WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM outcomes WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM steps WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM samples WHERE id = ANY(:samples)"),
)
DELETE_GIVEN = text("DELETE FROM given WHERE job = (SELECT public_id FROM jobs WHERE id = :job)")
# Deleting the job also deletes its events and idempotency keys.
DELETE_JOB = text("DELETE FROM jobs WHERE id = :job")
# A question that is about to be submitted has no job yet, hence the hour.
DELETE_QUESTIONS = text("""
    DELETE FROM datasets d WHERE d.online AND d.created_at < now() - interval '1 hour'
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dataset_id = d.id)""")
# As long as its files are kept, a client may ask for it.
DELETE_BATCHES = text("""
    DELETE FROM batches b WHERE b.ended_at < now() - interval '30 days' AND NOT EXISTS (
        SELECT FROM batch_jobs k JOIN jobs j ON j.public_id = k.job WHERE k.batch_id = b.id)""")
DELETE_EXPERIMENTS = text("""
    DELETE FROM experiments e WHERE NOT EXISTS (
        SELECT 1 FROM experiment_cells c WHERE c.experiment_id = e.id AND c.job_id IS NOT NULL) RETURNING e.name""")
DELETE_DATASETS = text("""
    DELETE FROM datasets d WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dataset_id = d.id) RETURNING d.name""")
DELETE_CORPORA = text("""
    DELETE FROM corpora c WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.corpus_id = c.id)
        AND NOT EXISTS (SELECT 1 FROM graphs g WHERE g.corpus_id = c.id)
        AND NOT EXISTS (
            SELECT 1 FROM jobs j JOIN indexes i ON i.model_id = CAST(j.pins -> 'fallback' ->> 'model_id' AS integer)
            WHERE j.ended_at IS NULL AND i.id = c.sparse_index) RETURNING c.name""")


class JobContent(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job and the numbers of rows that are purged with it."""

    id: int
    job: str
    name: str
    state: str
    chain: str | None
    ended_at: datetime
    samples: int
    steps: int
    outcomes: int
    records: int
    events: int
    idempotency_keys: int


async def find_jobs(owner: Database, references: Sequence[str]) -> list[JobContent]:
    """Find the jobs with these ids or names.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference matches several jobs, or some jobs or their batches are live; the message names them.
    """
    async with owner.snapshot() as connection:
        ids = [await jobs.resolve(connection, reference) for reference in references]
        rows = (await connection.execute(CONTENT, {"jobs": ids})).mappings().all()
        awaited = (await connection.execute(AWAITED, {"jobs": ids})).all()
    live = [f"{row['name']} ({row['job']}) is {row['state']}" for row in rows if row["state"] not in TERMINAL]
    if live:
        raise Conflict(f"only an ended job can be purged: {'; '.join(live)}", hint="mathrag job cancel JOB, or wait")
    if awaited:
        names = "; ".join(f"{row.name} ({row.public_id}), batch {row.state}" for row in awaited)
        raise Conflict(f"a batch that has not ended needs these jobs: {names}", hint="wait until its files are written")
    return [JobContent(**row) for row in rows]


async def find_outdated(
    owner: Database, before: datetime | None, keep: int, *, online: bool = False
) -> list[JobContent]:
    """Find ended jobs except the newest `keep`; `before` limits them to earlier ends, `online` to chats."""
    async with owner.snapshot() as connection:
        values = {"before": before, "keep": keep, "online": online}
        ids = list((await connection.execute(CHOOSE, values)).scalars())
        return [JobContent(**row) for row in (await connection.execute(CONTENT, {"jobs": ids})).mappings()]


async def purge(owner: Database, job: JobContent, actor: str) -> None:
    """Delete the job and its rows; calls stay, because other jobs may share them."""
    async with owner.transaction() as connection:
        detail = {key: value for key, value in msgspec.to_builtins(job).items() if key not in ("id", "job")}
        await operations.record_operation(connection, actor, "purge", f"job {job.job}", **detail)
    while await _delete_samples(owner, job.id):
        pass
    async with deletion_transaction(owner) as connection:
        await connection.execute(DELETE_GIVEN, {"job": job.id})
        await connection.execute(DELETE_JOB, {"job": job.id})


async def _delete_samples(owner: Database, job: int) -> int:
    async with deletion_transaction(owner) as connection:
        samples = list((await connection.execute(SAMPLES, {"job": job, "n": BATCH})).scalars())
        for statement in OF_SAMPLES:
            await connection.execute(statement, {"samples": samples})
    return len(samples)


async def forget_questions(owner: Database) -> int:
    """Delete the datasets of deleted online jobs and batches; return how many.

    Batches of such jobs are deleted, too, thirty days after their end.
    """
    async with owner.transaction() as connection:
        await connection.execute(DELETE_BATCHES)
        return (await connection.execute(DELETE_QUESTIONS)).rowcount


async def delete_unused(owner: Database, actor: str) -> dict[str, list[str]]:
    """Delete experiments without jobs, and datasets and corpora that no job uses; return their names by kind."""
    async with owner.transaction() as connection:
        deleted = {
            what: sorted((await connection.execute(statement)).scalars())
            for what, statement in (
                ("experiments", DELETE_EXPERIMENTS), ("datasets", DELETE_DATASETS), ("corpora", DELETE_CORPORA),
            )
        }  # fmt: skip
        if any(deleted.values()):
            await operations.record_operation(connection, actor, "purge", "unused", **deleted)
    return deleted
