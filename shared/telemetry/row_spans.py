"""Spans of jobs and samples, made from their rows once they have ended.

Jobs and samples run for hours across processes, so no process could hold their spans open. Their span ids come from
`references`, so that other spans can link to them before they exist.
"""

import uuid
from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database, SampleState, sql
from shared.telemetry import traces

SAMPLES = sql("""
    SELECT s.id, s.kind, s.ordinal, s.repeat, s.state, s.failure, s.ended_at, o.answer, o.extraction, o.correct,
           i.question, j.public_id, j.pipeline, COALESCE(j.running_at, j.created_at) AS begun_at
    FROM samples s JOIN jobs j ON j.id = s.job_id LEFT JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN items i ON {ASKED_BY_SAMPLE} AND s.kind = 'item'
    WHERE s.id = ANY(:samples) ORDER BY s.id""")
JOB = text("""
    SELECT id, public_id, name, pipeline, state, total, reuse, created_at, ended_at FROM jobs WHERE id = :job""")
EVENTS = text("SELECT state, at FROM job_events WHERE job_id = :job ORDER BY version")


async def trace_samples(database: Database, samples: Sequence[int]) -> None:
    """Make the spans of these samples, which have ended."""
    if not samples:
        return
    async with database.transaction() as connection:
        rows = (await connection.execute(SAMPLES, {"samples": list(samples)})).all()
    for row in rows:
        job = uuid.UUID(str(row.public_id))
        attributes = {
            traces.SPAN_KIND: traces.CHAIN,
            "mathrag.job.id": str(row.public_id),
            "mathrag.sample.id": row.id,
            "mathrag.sample.index": row.ordinal,
            "mathrag.sample.repeat": row.repeat,
            "mathrag.sample.state": SampleState(row.state).word,
            "mathrag.sample.extraction": row.extraction,
            "mathrag.sample.correct": row.correct,
        }
        if traces.keeps_content():
            attributes |= {traces.INPUT: row.question, traces.OUTPUT: row.answer}
        traces.add_past_span(
            f"sample {row.pipeline}" if row.kind == "item" else f"prepare {row.pipeline}",
            row.begun_at,
            row.ended_at,
            attributes,
            ref=traces.make_sample_ref(job, row.id),
            parent=traces.make_job_ref(job),
            failure=row.failure,
        )


async def trace_job(connection: AsyncConnection, job: int) -> None:
    """Make the span of a job that has ended, with its changes of state as events."""
    row = (await connection.execute(JOB, {"job": job})).one()
    public_id = uuid.UUID(str(row.public_id))
    events = [(event.state, event.at) for event in await connection.execute(EVENTS, {"job": row.id})]
    traces.add_past_span(
        f"job {row.pipeline}",
        row.created_at,
        row.ended_at,
        {
            traces.SPAN_KIND: traces.CHAIN,
            "mathrag.job.id": str(public_id),
            "mathrag.job.name": row.name,
            "mathrag.job.state": row.state,
            "mathrag.job.samples": row.total,
            "mathrag.job.reuse": row.reuse,
        },
        ref=traces.make_job_ref(public_id),
        events=events,
        failure=row.state if row.state == "failed" else None,
    )
