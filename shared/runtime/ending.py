"""How samples and jobs end. Every statement is guarded by the state it leaves, so running it twice is harmless."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.samples import GateDecision, Outcome
from shared.redaction import redacted
from shared.runtime.cancel import cancel_samples
from shared.runtime.finalising import Step, empty_chain, finalise
from shared.runtime.parking import park_job
from shared.runtime.progress import Progress
from shared.storage.database import Database
from shared.storage.outages import passing
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
# What brings each live job nearer to its end now; one look at the few that are live.
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
# A cancelled job's calls at the guard may still end. While one is in the queue for it alone, a claim that is not
# committed yet may hold it, so a pending call counts, too, until it is parked.
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
"""Samples of a job that a worker brings to its end between two batches; a larger one is left to the orchestrator."""
ANY_SIZE = 2**31 - 1

_log = logging.getLogger(__name__)


class Due(NamedTuple):
    """A job that can be brought on."""

    job: int
    state: str


async def write(connection: AsyncConnection, ended: Sequence[Progress]) -> None:
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
            "details": [detail and _storable(detail) for _, detail in failures],
        },
    )


class Broken(NamedTuple):
    """A ready sample that cannot be replayed, or not be stored."""

    sample: int
    job: int
    public_id: str
    """Of the job."""
    kind: str
    detail: str


async def fail(connection: AsyncConnection, broken: Sequence[Broken]) -> None:
    """End these samples as failed, as if none of their replies had been consumed."""
    if not broken:
        return
    await connection.execute(
        END_SAMPLES,
        {
            "samples": [each.sample for each in broken],
            "states": [3] * len(broken),
            "positions": [0] * len(broken),
            "failures": [each.kind for each in broken],
            "details": [_storable(each.detail) for each in broken],
        },
    )


def _storable(detail: str) -> str:
    return detail[:4000].replace("\0", "").encode(errors="replace").decode()


def _refuse_unstorable(progress: Progress) -> None:
    """An outcome that the database cannot hold fails its own sample, not the batch."""
    result = progress.replay.result
    if progress.replay.failure is None and not isinstance(result, Outcome | GateDecision):
        progress.replay.fail("pipeline_error", f"it ended with {type(result).__name__} and not with an outcome")
    try:
        canonical.encode(result)
    except (TypeError, ValueError) as error:
        progress.replay.fail("pipeline_error", f"cannot store the outcome: {error}")
    if isinstance(result, Outcome) and "\0" in (result.answer or ""):
        progress.replay.fail("pipeline_error", "cannot store the outcome: the answer holds a NUL character")


def _columns(completed: Sequence[Progress]) -> dict[str, list[object]]:
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


async def due(database: Database, most: int = ANY_SIZE) -> list[Due]:
    """Jobs of at most so many samples that can be brought nearer to their end; one statement."""
    async with database.statement() as connection:
        return [Due(row.id, row.state) for row in await connection.execute(DUE, {"most": most})]


async def step(database: Database, job: Due) -> Step:
    """Bring one job on: a prepared one runs or fails, a drained one is finalised, each by a batch at most."""
    return await _STEPS[job.state](database, job.job)


async def finish(database: Database, most: int = ANY_SIZE) -> list[int]:
    """One step of every due job of at most so many samples; returns those that ended.

    Called after every batch that ended a sample. A job that cannot be brought on holds up no other one: the
    orchestrator tries it again, and says why on the job.
    """
    ended = []
    for each in await due(database, most):
        try:
            if await step(database, each) is Step.ENDED:
                ended.append(each.job)
        except Exception as error:
            if passing(error):
                raise
            _log.exception("job %d cannot be brought to its end", each.job)
    return ended


async def explain(database: Database, job: int, error: Exception) -> None:
    """Let the job say why it cannot be brought to its end; its end clears that."""
    said = redacted(str(error).partition("\n")[0])
    values = {"job": job, "reason": f"cannot be brought to its end, tried again: {type(error).__name__}: {said}"[:500]}
    async with database.transaction() as connection:
        await connection.execute(EXPLAIN, values)


async def _prepared(database: Database, job: int) -> Step:
    """Run the job with the outcome of its preparation, or let it fail."""
    async with database.transaction() as connection:
        row = (await connection.execute(PREPARED, {"job": job})).one()
        if row.outcome is not None:
            await run(connection, [job], row.outcome)
            return Step.MOVED
        values = {"job": job, "reason": f"{row.failure}: {row.detail}", "chain": await empty_chain(connection, job)}
        return Step.ENDED if (await connection.execute(FAIL, values)).rowcount else Step.WAITS


async def _finished(database: Database, job: int) -> Step:
    return await finalise(database, job) if await _is(database, FINALIZE, job) else Step.WAITS


async def _cancelled(database: Database, job: int) -> Step:
    """End its live samples, then wait for its calls in flight, then finalise it."""
    if await cancel_samples(database, job):
        return Step.MOVED
    if not await _is(database, BEGUN, job):  # once drained it stays so, and asking walks all its steps
        await park_job(database, job)
        if not await _is(database, DRAINED, job):
            return Step.WAITS
    return await finalise(database, job)


async def _is(database: Database, statement: TextClause, job: int) -> bool:
    async with database.transaction() as connection:
        return bool((await connection.execute(statement, {"job": job})).scalar())


_STEPS: Mapping[str, Callable[[Database, int], Awaitable[Step]]] = {
    "preparing": _prepared,
    "running": _finished,
    "cancelling": _cancelled,
    "finalizing": finalise,
}


async def run(connection: AsyncConnection, jobs: Sequence[int], prepared: bytes | None) -> None:
    """Set preparing jobs to running and insert their samples, once."""
    values = {"jobs": list(jobs), "prepared": prepared}
    if started := list((await connection.execute(RUN, values)).scalars()):
        await connection.execute(EXPAND, {"jobs": started})
