"""Jobs and samples as spans, made from their rows once they have ended.

They live for hours across processes, so no process holds them open. Their ids are those of `references`: what served
them could link to them before they were there.
"""

import uuid
from collections.abc import Sequence

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.states import SampleState
from shared.telemetry import conventions as names
from shared.telemetry import references, traces

SAMPLES = sql("""
    SELECT s.id, s.kind, s.ordinal, s.repeat, s.state, s.failure, s.ended_at, o.answer, o.extraction, o.correct,
           i.question, j.public_id, j.pipeline, COALESCE(j.running_at, j.created_at) AS begun_at
    FROM samples s JOIN jobs j ON j.id = s.job_id LEFT JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN items i ON {ASKED_BY_SAMPLE} AND s.kind = 'item'
    WHERE s.id = ANY(:samples) ORDER BY s.id""")
JOB = text("""
    SELECT id, public_id, name, pipeline, state, total, reuse, created_at, ended_at FROM jobs WHERE id = :job""")
EVENTS = text("SELECT state, at FROM job_events WHERE job_id = :job ORDER BY version")


async def samples_ended(database: Database, samples: Sequence[int]) -> None:
    """Make the spans of samples that have ended."""
    if not samples:
        return
    async with database.transaction() as connection:
        rows = (await connection.execute(SAMPLES, {"samples": list(samples)})).all()
    for row in rows:
        job = uuid.UUID(str(row.public_id))
        traces.past(
            f"sample {row.pipeline}" if row.kind == "item" else f"prepare {row.pipeline}",
            row.begun_at,
            row.ended_at,
            _sample(row),
            ref=references.sample(job, row.id),
            parent=references.job(job),
            failure=row.failure,
        )


async def job_ended(connection: AsyncConnection, job: int) -> None:
    """Make the span of a job that has ended; its changes of state are the span's events."""
    row = (await connection.execute(JOB, {"job": job})).one()
    public_id = uuid.UUID(str(row.public_id))
    events = [(event.state, event.at) for event in await connection.execute(EVENTS, {"job": row.id})]
    traces.past(
        f"job {row.pipeline}",
        row.created_at,
        row.ended_at,
        {
            names.SPAN_KIND: names.CHAIN,
            "mathrag.job.id": str(public_id),
            "mathrag.job.name": row.name,
            "mathrag.job.state": row.state,
            "mathrag.job.samples": row.total,
            "mathrag.job.reuse": row.reuse,
        },
        ref=references.job(public_id),
        events=events,
        failure=row.state if row.state == "failed" else None,
    )


def _sample(row: Row[tuple[object, ...]]) -> traces.Attributes:
    attributes = {
        names.SPAN_KIND: names.CHAIN,
        "mathrag.job.id": str(row.public_id),
        "mathrag.sample.id": row.id,
        "mathrag.sample.index": row.ordinal,
        "mathrag.sample.repeat": row.repeat,
        "mathrag.sample.state": SampleState(row.state).word,
        "mathrag.sample.extraction": row.extraction,
        "mathrag.sample.correct": row.correct,
    }
    return attributes | {names.INPUT: row.question, names.OUTPUT: row.answer} if traces.content() else attributes
