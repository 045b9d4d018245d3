"""How samples and jobs end. Every statement is guarded by the state it leaves, so running it twice is harmless."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.samples import GateDecision, Outcome
from shared.runtime.finalising import empty_chain, finalise
from shared.runtime.parking import park_idle
from shared.runtime.progress import Progress
from shared.storage.database import Database

INSERT_OUTCOMES = text("""
    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT * FROM unnest(CAST(:samples AS bigint[]), CAST(:outcomes AS bytea[]), CAST(:answers AS text[]),
        CAST(:extractions AS text[]), CAST(:correct AS boolean[]), CAST(:strict AS boolean[]),
        CAST(:records AS bytea[]))""")
END_SAMPLES = text("""
    UPDATE samples s SET state = u.state, position = u.position, failure = u.failure, detail = u.detail,
        ended_at = clock_timestamp()
    FROM unnest(CAST(:samples AS bigint[]), CAST(:states AS smallint[]), CAST(:positions AS smallint[]),
        CAST(:failures AS text[]), CAST(:details AS text[])) u(id, state, position, failure, detail)
    WHERE s.id = u.id AND s.state = 0""")
# What brings each live job nearer to its end now; one look at the few that are live.
DUE = text("""
    SELECT j.id, j.state FROM jobs j WHERE j.ended_at IS NULL AND CASE j.state
        WHEN 'preparing' THEN EXISTS (
            SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare' AND s.state IN (2, 3))
        WHEN 'running' THEN NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN (0, 1))
        ELSE j.state IN ('cancelling', 'finalizing') END ORDER BY j.id""")
PREPARED = text("""
    SELECT s.failure, s.detail, o.outcome FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'prepare' AND s.state IN (2, 3)""")
RUN = text("""
    UPDATE jobs SET state = 'running', prepared = :prepared, running_at = clock_timestamp(), version = version + 1
    WHERE id = ANY(:jobs) AND state = 'preparing' RETURNING id""")
EXPAND = text("""
    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT j.id, 'item', i.ordinal, r, 0
    FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id CROSS JOIN generate_series(0, j.repeats - 1) r
    WHERE j.id = ANY(:jobs) ORDER BY j.id, r, i.ordinal""")
FAIL = text("""
    UPDATE jobs SET state = 'failed', reason = :reason, chain = :chain, ended_at = clock_timestamp(),
        version = version + 1
    WHERE id = :job AND state = 'preparing'""")
FINALIZE = text("""
    UPDATE jobs j SET state = 'finalizing', version = version + 1
    WHERE j.id = :job AND j.state = 'running'
        AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN (0, 1))
    RETURNING j.id""")
# A cancelled job's calls at the guard may still end. While one is in the queue for it alone, a claim that is not
# committed yet may hold it, so a pending call counts, too, until it is parked.
DRAINED = text("""
    SELECT j.id FROM jobs j
    WHERE j.id = :job AND j.state = 'cancelling' AND NOT EXISTS (
        SELECT 1 FROM samples s JOIN steps t ON t.sample_id = s.id JOIN queue q ON q.call_id = t.call_id
        WHERE s.job_id = j.id AND NOT EXISTS (
            SELECT 1 FROM steps o JOIN samples w ON w.id = o.sample_id AND w.state = 1 AND w.position = o.position + 1
            WHERE o.call_id = q.call_id))""")


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
            "states": [2 if progress.replay.failure is None else 3 for progress in ended],
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
        "correct": [verdict.math_verify if verdict else None for verdict in verdicts],
        "strict": [verdict.strict if verdict else None for verdict in verdicts],
        "records": [progress.record for progress in completed],
    }


async def finish(database: Database) -> list[int]:
    """Bring every job on that can be: prepared ones run or fail, drained ones are finalised; returns the ended ones.

    Called after every batch that ended a sample: one statement while no job is due.
    """
    async with database.statement() as connection:
        due = (await connection.execute(DUE)).all()
    if any(row.state == "cancelling" for row in due):
        await park_idle(database)
    return [row.id for row in due if await _STEPS[row.state](database, row.id)]


async def _prepared(database: Database, job: int) -> bool:
    """Run the job with the outcome of its preparation, or let it fail; whether it ended."""
    async with database.transaction() as connection:
        row = (await connection.execute(PREPARED, {"job": job})).one()
        if row.outcome is not None:
            await run(connection, [job], row.outcome)
            return False
        values = {"job": job, "reason": f"{row.failure}: {row.detail}", "chain": await empty_chain(connection, job)}
        return (await connection.execute(FAIL, values)).rowcount > 0


async def _finished(database: Database, job: int) -> bool:
    return await _reached(database, FINALIZE, job) and await finalise(database, job)


async def _cancelled(database: Database, job: int) -> bool:
    return await _reached(database, DRAINED, job) and await finalise(database, job)


async def _reached(database: Database, statement: TextClause, job: int) -> bool:
    async with database.transaction() as connection:
        return (await connection.execute(statement, {"job": job})).first() is not None


_STEPS: Mapping[str, Callable[[Database, int], Awaitable[bool]]] = {
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
