"""Purge jobs: what the application may not delete, the owner does, in short transactions, and says so first.

The row in `operations` is committed before anything is gone. A purge that was killed is finished by asking again.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import text

from shared.errors import Conflict
from shared.runtime.retention import deleting
from shared.storage import jobs, operations
from shared.storage.database import Database
from shared.storage.states import TERMINAL

BATCH = 1000
"""Samples a transaction."""

# Newest first, so that the first ones are kept. Questions that somebody waited for are kept as long as other jobs.
CHOOSE = text("""
    SELECT id FROM (SELECT j.id, j.ended_at, row_number() OVER (ORDER BY j.id DESC) AS newest
                    FROM jobs j WHERE j.ended_at IS NOT NULL AND (j.online OR NOT :online)) j
    WHERE j.newest > :keep AND j.ended_at < COALESCE(CAST(:before AS timestamptz), 'infinity') ORDER BY id""")
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
# Events and idempotency keys go with it.
DELETE_JOB = text("DELETE FROM jobs WHERE id = :job")
# One that is about to be asked for has no job yet.
DELETE_QUESTIONS = text("""
    DELETE FROM datasets d WHERE d.online AND d.created_at < now() - interval '1 hour'
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dataset_id = d.id)""")
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


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job and the rows that go with it."""

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


async def chosen(owner: Database, references: Sequence[str]) -> list[Content]:
    """The jobs with these ids or names.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference stands for several jobs, or some are live; the message names them.
    """
    async with owner.snapshot() as connection:
        ids = [await jobs.resolve(connection, reference) for reference in references]
        rows = (await connection.execute(CONTENT, {"jobs": ids})).mappings().all()
    live = [f"{row['name']} ({row['job']}) is {row['state']}" for row in rows if row["state"] not in TERMINAL]
    if live:
        raise Conflict(f"only an ended job can be purged: {'; '.join(live)}", hint="mathrag job cancel JOB, or wait")
    return [Content(**row) for row in rows]


async def outdated(owner: Database, before: datetime | None, keep: int, *, online: bool = False) -> list[Content]:
    """The ended jobs but for the newest `keep`; with `before` those that ended earlier, with `online` chats only."""
    async with owner.snapshot() as connection:
        values = {"before": before, "keep": keep, "online": online}
        ids = list((await connection.execute(CHOOSE, values)).scalars())
        return [Content(**row) for row in (await connection.execute(CONTENT, {"jobs": ids})).mappings()]


async def purge(owner: Database, job: Content, actor: str) -> None:
    """Delete the job with all that is its own; its calls stay for others."""
    async with owner.transaction() as connection:
        detail = {key: value for key, value in msgspec.to_builtins(job).items() if key not in ("id", "job")}
        await operations.note(connection, actor, "purge", f"job {job.job}", **detail)
    while await _delete_samples(owner, job.id):
        pass
    async with deleting(owner) as connection:
        await connection.execute(DELETE_GIVEN, {"job": job.id})
        await connection.execute(DELETE_JOB, {"job": job.id})


async def _delete_samples(owner: Database, job: int) -> int:
    async with deleting(owner) as connection:
        samples = list((await connection.execute(SAMPLES, {"job": job, "n": BATCH})).scalars())
        for statement in OF_SAMPLES:
            await connection.execute(statement, {"samples": samples})
    return len(samples)


async def forget_questions(owner: Database) -> int:
    """Delete the one-question datasets of online jobs that are gone; returns how many."""
    async with owner.transaction() as connection:
        return (await connection.execute(DELETE_QUESTIONS)).rowcount


async def delete_unused(owner: Database, actor: str) -> dict[str, list[str]]:
    """Delete the experiments whose jobs are gone, the datasets and the corpora that no job refers to; their names."""
    async with owner.transaction() as connection:
        deleted = {
            what: sorted((await connection.execute(statement)).scalars())
            for what, statement in (
                ("experiments", DELETE_EXPERIMENTS), ("datasets", DELETE_DATASETS), ("corpora", DELETE_CORPORA),
            )
        }  # fmt: skip
        if any(deleted.values()):
            await operations.note(connection, actor, "purge", "unused", **deleted)
    return deleted
