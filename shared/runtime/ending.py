"""End samples and jobs. Each statement requires the state that it leaves, so running it twice has no effect."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.samples import GateDecision, Outcome
from shared.redaction import redact
from shared.runtime.cancel import cancel_samples
from shared.runtime.finalising import EndStep, finalise, make_empty_chain
from shared.runtime.parking import park_job
from shared.runtime.progress import SampleProgress
from shared.storage.database import Database
from shared.storage.outages import is_passing
from shared.storage.sql import sql
from shared.storage.states import SampleState

INSERT_OUTCOMES = text("""
    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT * FROM unnest(CAST(:samples AS bigint[]), CAST(:outcomes AS bytea[]), CAST(:answers AS text[]),
        CAST(:extractions AS text[]), CAST(:correct AS boolean[]), CAST(:strict AS boolean[]),
        CAST(:records AS bytea[]))""")
END_SAMPLES = sql("""
    UPDATE samples s SET state = u.state, position = u.position, failure = u.failure, detail = u.detail,
        ended_at = clock_timestamp()
    FROM unnest(CAST(:samples AS bigint[]), CAST(:states AS smallint[]), CAST(:positions AS smallint[]),
        CAST(:failures AS text[]), CAST(:details AS text[])) u(id, state, position, failure, detail)
    WHERE s.id = u.id AND s.state = {READY}""")
# Live jobs that can be brought nearer to their end now; only few jobs are live.
DUE = sql("""
    SELECT j.id, j.state FROM jobs j WHERE j.ended_at IS NULL AND j.total <= :most AND CASE j.state
        WHEN 'preparing' THEN EXISTS (
            SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare' AND s.state IN {DONE})
        WHEN 'running' THEN NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN {LIVE})
        ELSE j.state IN ('cancelling', 'finalizing') END ORDER BY j.id""")
PREPARED = sql("""
    SELECT s.failure, s.detail, o.outcome FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'prepare' AND s.state IN {DONE}""")
RUN = text("""
    UPDATE jobs SET state = 'running', prepared = :prepared, running_at = clock_timestamp(), version = version + 1
    WHERE id = ANY(:jobs) AND state = 'preparing' RETURNING id""")
EXPAND = sql("""
    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT j.id, 'item', i.ordinal, r, {READY}
    FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
        AND i.ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), i.ordinal + 1)
    CROSS JOIN generate_series(0, j.repeats - 1) r
    WHERE j.id = ANY(:jobs) AND ({GIVEN_FOR_ITEM}) ORDER BY j.id, r, i.ordinal""")
FAIL = text("""
    UPDATE jobs SET state = 'failed', reason = :reason, chain = :chain, ended_at = clock_timestamp(),
        version = version + 1
    WHERE id = :job AND state = 'preparing'""")
FINALIZE = sql("""
    UPDATE jobs j SET state = 'finalizing', version = version + 1
    WHERE j.id = :job AND j.state = 'running'
        AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN {LIVE})
    RETURNING j.id""")
# A cancelled job's calls may still be running at the guard. While a call is queued for this job alone, an uncommitted
# claim may hold it, so pending calls count, too, until they are parked.
DRAINED = sql("""
    SELECT j.id FROM jobs j
    WHERE j.id = :job AND j.state = 'cancelling'
      AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN {LIVE}) AND NOT EXISTS (
        SELECT 1 FROM samples s JOIN steps t ON t.sample_id = s.id JOIN queue q ON q.call_id = t.call_id
        WHERE s.job_id = j.id AND NOT EXISTS (
            SELECT 1 FROM steps o
            JOIN samples w ON w.id = o.sample_id AND w.state = {WAITING} AND w.position = o.position + 1
            WHERE o.call_id = q.call_id))""")
BEGUN = text("SELECT EXISTS (SELECT 1 FROM records WHERE job_id = :job)")
EXPLAIN = text("""
    UPDATE jobs SET reason = :reason, version = version + 1
    WHERE id = :job AND ended_at IS NULL AND reason IS DISTINCT FROM :reason""")
SMALL = 1000
"""Largest job, in samples, that a worker ends between two batches; the orchestrator ends larger ones."""
ANY_SIZE = 2**31 - 1

_log = logging.getLogger(__name__)


class DueJob(NamedTuple):
    """A job that can be brought nearer to its end."""

    job: int
    state: str


async def store_ended(connection: AsyncConnection, ended: Sequence[SampleProgress]) -> None:
    """Store the outcomes and end states of samples whose replay ended."""
    if not ended:
        return
    for progress in ended:
        _refuse_unstorable(progress)
    completed = [progress for progress in ended if progress.replay.failure is None]
    if completed:
        await connection.execute(INSERT_OUTCOMES, _columns(completed))
    failures = [progress.replay.failure or (None, None) for progress in ended]
    await connection.execute(
        END_SAMPLES,
        {
            "samples": [progress.sample_id for progress in ended],
            "states": [
                SampleState.COMPLETED if progress.replay.failure is None else SampleState.FAILED for progress in ended
            ],
            "positions": [progress.replay.position for progress in ended],
            "failures": [kind for kind, _ in failures],
            "details": [detail and _make_storable(detail) for _, detail in failures],
        },
    )


class BrokenSample(NamedTuple):
    """A ready sample that cannot be replayed, or not be stored."""

    sample: int
    job: int
    public_id: str
    """Public id of the job."""
    kind: str
    detail: str


async def fail_samples(connection: AsyncConnection, broken: Sequence[BrokenSample]) -> None:
    """End these samples as failed, with no reply consumed."""
    if not broken:
        return
    await connection.execute(
        END_SAMPLES,
        {
            "samples": [each.sample for each in broken],
            "states": [3] * len(broken),
            "positions": [0] * len(broken),
            "failures": [each.kind for each in broken],
            "details": [_make_storable(each.detail) for each in broken],
        },
    )


def _make_storable(detail: str) -> str:
    return detail[:4000].replace("\0", "").encode(errors="replace").decode()


def _refuse_unstorable(progress: SampleProgress) -> None:
    """Fail the sample alone if the database cannot hold its outcome, instead of the whole batch."""
    result = progress.replay.result
    if progress.replay.failure is None and not isinstance(result, Outcome | GateDecision):
        progress.replay.fail("pipeline_error", f"it ended with {type(result).__name__} and not with an outcome")
    try:
        canonical.encode(result)
    except (TypeError, ValueError) as error:
        progress.replay.fail("pipeline_error", f"cannot store the outcome: {error}")
    if isinstance(result, Outcome) and "\0" in (result.answer or ""):
        progress.replay.fail("pipeline_error", "cannot store the outcome: the answer holds a NUL character")


def _columns(completed: Sequence[SampleProgress]) -> dict[str, list[object]]:
    results = [progress.replay.result for progress in completed]
    outcomes = [result if isinstance(result, Outcome) else None for result in results]
    verdicts = [outcome.verdict if outcome else None for outcome in outcomes]
    return {
        "samples": [progress.sample_id for progress in completed],
        "outcomes": [canonical.encode(result) for result in results],
        "answers": [outcome.answer if outcome else None for outcome in outcomes],
        "extractions": [outcome.extraction.value if outcome else None for outcome in outcomes],
        "correct": [verdict.correct if verdict else None for verdict in verdicts],
        "strict": [verdict.strict if verdict else None for verdict in verdicts],
        "records": [progress.record for progress in completed],
    }


async def list_due_jobs(database: Database, most: int = ANY_SIZE) -> list[DueJob]:
    """List the jobs of at most `most` samples that can be brought nearer to their end, with one statement."""
    async with database.statement() as connection:
        return [DueJob(row.id, row.state) for row in await connection.execute(DUE, {"most": most})]


async def end_job_step(database: Database, job: DueJob) -> EndStep:
    """Take a job's next step: a prepared job runs or fails, a drained one is finalised by at most one batch."""
    return await _STEPS[job.state](database, job.job)


async def finish_due_jobs(database: Database, most: int = ANY_SIZE) -> list[int]:
    """Take one step of every due job of at most `most` samples; return the jobs that ended.

    This runs after every batch that ended a sample. A job whose step fails does not hold up other jobs: the
    orchestrator tries it again and records the reason.
    """
    ended = []
    for each in await list_due_jobs(database, most):
        try:
            if await end_job_step(database, each) is EndStep.ENDED:
                ended.append(each.job)
        except Exception as error:
            if is_passing(error):
                raise
            _log.exception("job %d cannot be brought to its end", each.job)
    return ended


async def record_reason(database: Database, job: int, error: Exception) -> None:
    """Record on the job why it cannot be ended; ending it clears the reason."""
    message = redact(str(error).partition("\n")[0])
    values = {
        "job": job,
        "reason": f"cannot be brought to its end, tried again: {type(error).__name__}: {message}"[:500],
    }
    async with database.transaction() as connection:
        await connection.execute(EXPLAIN, values)


async def _leave_preparing(database: Database, job: int) -> EndStep:
    """Run the job with the outcome of its preparation, or fail it."""
    async with database.transaction() as connection:
        row = (await connection.execute(PREPARED, {"job": job})).one()
        if row.outcome is not None:
            await start_jobs(connection, [job], row.outcome)
            return EndStep.MOVED
        chain = await make_empty_chain(connection, job)
        values = {"job": job, "reason": f"{row.failure}: {row.detail}", "chain": chain}
        return EndStep.ENDED if (await connection.execute(FAIL, values)).rowcount else EndStep.WAITS


async def _leave_running(database: Database, job: int) -> EndStep:
    return await finalise(database, job) if await _matches(database, FINALIZE, job) else EndStep.WAITS


async def _leave_cancelling(database: Database, job: int) -> EndStep:
    """End its live samples, then wait for its calls in flight, then finalise it."""
    if await cancel_samples(database, job):
        return EndStep.MOVED
    if not await _matches(database, BEGUN, job):  # once drained it stays so, and asking walks all its steps
        await park_job(database, job)
        if not await _matches(database, DRAINED, job):
            return EndStep.WAITS
    return await finalise(database, job)


async def _matches(database: Database, statement: TextClause, job: int) -> bool:
    async with database.transaction() as connection:
        return bool((await connection.execute(statement, {"job": job})).scalar())


_STEPS: Mapping[str, Callable[[Database, int], Awaitable[EndStep]]] = {
    "preparing": _leave_preparing,
    "running": _leave_running,
    "cancelling": _leave_cancelling,
    "finalizing": finalise,
}


async def start_jobs(connection: AsyncConnection, jobs: Sequence[int], prepared: bytes | None) -> None:
    """Set preparing jobs to running and insert their samples, once."""
    values = {"jobs": list(jobs), "prepared": prepared}
    if started := list((await connection.execute(RUN, values)).scalars()):
        await connection.execute(EXPAND, {"jobs": started})
