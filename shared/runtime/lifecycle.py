"""A job from its submission to its end: pause, resume, cancel and amend it, and bring it to its end.

Each statement requires the state that it leaves, so running it twice has no effect."""

import logging
import re
import uuid
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, InProgress, NotFound, PreconditionFailed
from mathrag.messages import redact
from shared import canonical
from shared.fields import Metadata, Rank
from shared.records import chain_records, genesis
from shared.runtime.queue import park, park_job, revive_calls
from shared.storage import provenance
from shared.storage.database import RUNNABLE, Database, get_project, is_passing, make_name_taken, show_all, sql

# Lock a job's row before changing the job, so that the checks stay true until the commit.

LOCK = text("SELECT id, state, version, total FROM jobs WHERE public_id = :job FOR NO KEY UPDATE")
_STANDS = {
    "cancelling": "is being cancelled",
    "finalizing": "is finalizing: all its samples have ended",
    "cancelled": "was cancelled",
}


async def lock_job(connection: AsyncConnection, public_id: uuid.UUID, versions: Collection[int] | None) -> Row[Any]:
    """Lock the job's row and return its id, state, version and total.

    `versions` are the versions that the caller has seen; None accepts any.

    Raises:
        NotFound: no such job.
        PreconditionFailed: the job has another version.
    """
    row = (await connection.execute(LOCK, {"job": public_id})).first()
    if row is None:
        raise NotFound(f"no job {public_id}", hint="mathrag job list")
    if versions is not None and row.version not in versions:
        raise PreconditionFailed(
            f"job {public_id} has changed: it is now {row.state}, at version {row.version}",
            hint="read it again, then repeat the change with its new ETag",
        )
    return row


def state_conflict(public_id: uuid.UUID, state: str, wish: str) -> Conflict:
    """Return the error that a job in `state` cannot be `wish` (a participle such as "paused")."""
    stands = _STANDS.get(state, f"has {state}")
    return Conflict(f"job {public_id} {stands}; it cannot be {wish}", hint="mathrag job requeue submits it again")


# Cancel a job: its samples end, its calls are parked, and calls in flight may still finish.
#
# A cancelling job is neither advanced nor claimed. Its samples end in batches: the first with the cancel itself, the
# others by whichever process ends the job (`end_job_step`). Calls belong to no job, so they are not cancelled;
# those that no other job waits for leave the queue.

CANCEL = text("UPDATE jobs SET state = 'cancelling', version = version + 1 WHERE id = :job")
CANCEL_ALL = text("""
    WITH live AS MATERIALIZED (
        SELECT id FROM jobs WHERE public_id = ANY(:jobs) AND state = ANY(:cancellable) ORDER BY id FOR NO KEY UPDATE)
    UPDATE jobs j SET state = 'cancelling', version = version + 1 FROM live WHERE j.id = live.id RETURNING j.id""")
CANCEL_SAMPLES = sql("""
    WITH batch AS MATERIALIZED (SELECT id FROM samples WHERE job_id = ANY(:jobs) AND state IN {LIVE} LIMIT :n),
    live AS MATERIALIZED (
        SELECT s.id FROM samples s WHERE s.id = ANY(ARRAY(SELECT id FROM batch)) AND s.state IN {LIVE}
        ORDER BY s.id FOR NO KEY UPDATE)
    UPDATE samples s SET state = {CANCELLED}, ended_at = clock_timestamp() FROM live WHERE s.id = live.id
    RETURNING s.id""")
CANCELLED = sql("SELECT id FROM samples WHERE job_id = :job AND state = {CANCELLED} LIMIT :n")
CANCELLED_AT_ONCE = 2000
"""Samples ended in one transaction."""
CANCELLABLE = RUNNABLE | {"paused"}


async def cancel(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Cancel the job, paused or not; cancelling it again has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has completed or failed, or has nothing left to cancel.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state in CANCELLABLE:
            await connection.execute(CANCEL, {"job": job.id})
        elif job.state not in ("cancelling", "cancelled"):
            raise state_conflict(public_id, job.state, "cancelled")
        await _end_batch(connection, [job.id])
        # Include samples of an earlier cancel: its process may have died before it parked their calls.
        ended = (await connection.execute(CANCELLED, {"job": job.id, "n": CANCELLED_AT_ONCE})).scalars().all()
    await park(database, ended)


async def cancel_all(database: Database, public_ids: Sequence[uuid.UUID]) -> None:
    """Cancel the cancellable ones of these jobs in one transaction; leave the others unchanged."""
    async with database.transaction() as connection:
        values = {"jobs": list(public_ids), "cancellable": sorted(CANCELLABLE)}
        cancelled = list((await connection.execute(CANCEL_ALL, values)).scalars())
        ended = await _end_batch(connection, cancelled)
    await park(database, ended)


async def cancel_samples(database: Database, job: int) -> int:
    """End the next batch of a cancelling job's samples and park their calls; return how many samples ended."""
    async with database.transaction() as connection:
        ended = await _end_batch(connection, [job])
    await park(database, ended)
    return len(ended)


async def _end_batch(connection: AsyncConnection, jobs: Sequence[int]) -> Sequence[int]:
    return (await connection.execute(CANCEL_SAMPLES, {"jobs": jobs, "n": CANCELLED_AT_ONCE})).scalars().all()


# Finalise a job: chain the records of its samples batch by batch, then end the job.
#
# Any process may do this, and another one continues after a kill: each transaction starts at the last committed link,
# and the job ends in the transaction of its last links. An advisory lock prevents duplicate work.

FINALISED_AT_ONCE = 200
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
        last = await provenance.find_chain_end(connection, job)
        sequence, head = (last.sequence, last.hash) if last else (0, await make_empty_chain(connection, job))
        after = last.after if last else provenance.START
        batch = await provenance.load_sample_records(connection, job, after, FINALISED_AT_ONCE)
        links = list(chain_records((record for _, record in batch), sequence, head))
        if links:
            await provenance.insert_links(connection, job, [sample for sample, _ in batch], links)
        if len(batch) == FINALISED_AT_ONCE:
            return EndStep.MOVED
        chain = links[-1].hash if links else head
        ended = (await connection.execute(END, {"job": job, "chain": chain})).first()
        return EndStep.WAITS if ended is None else EndStep.ENDED


async def make_empty_chain(connection: AsyncConnection, job: int) -> bytes:
    """Return the chain of a job without samples, which is the hash of the job's record."""
    return genesis(await provenance.load_job_record(connection, job))


# Live jobs that can be brought nearer to their end now; only few jobs are live. `+` makes the planner find the few
# samples that prepare a job by their kind.
DUE = sql("""
    SELECT j.id, j.state FROM jobs j WHERE j.ended_at IS NULL AND j.total <= :most AND CASE j.state
        WHEN 'preparing' THEN EXISTS (
            SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare' AND +s.state IN {DONE} OFFSET 0)
        WHEN 'running' THEN NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN {LIVE} OFFSET 0)
        ELSE j.state IN ('cancelling', 'finalizing') END ORDER BY j.id""")
PREPARED = sql("""
    SELECT s.failure, s.detail, o.outcome FROM samples s
        LEFT JOIN LATERAL (SELECT outcome FROM outcomes WHERE sample_id = s.id OFFSET 0) o ON true
    WHERE s.job_id = :job AND s.kind = 'prepare' AND +s.state IN {DONE}""")
RUN = text("""
    UPDATE jobs SET state = 'running', prepared = :prepared, running_at = clock_timestamp(), version = version + 1
    WHERE id = ANY(:jobs) AND state = 'preparing' RETURNING id""")
EXPAND = sql("""
    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT j.id, 'item', i.ordinal, r, {READY}
    FROM jobs j, LATERAL (
        SELECT ordinal FROM items WHERE dataset_id = j.dataset_id
            AND ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), ordinal + 1) OFFSET 0) i
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
# claim may hold it, so pending calls count as well, until they are parked.
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


async def list_due_jobs(database: Database, most: int = ANY_SIZE) -> list[DueJob]:
    """List the jobs of at most `most` samples that can be brought nearer to their end, with one statement."""
    async with database.statement() as connection:
        return [DueJob(row.id, row.state) for row in await connection.execute(DUE, {"most": most})]


async def end_job_step(database: Database, job: DueJob) -> EndStep:
    """Take a job's next step: a prepared job runs or fails, a drained one is finalised by at most one batch."""
    match job.state:
        case "preparing":
            return await _leave_preparing(database, job.job)
        case "cancelling":
            return await _leave_cancelling(database, job.job)
        case "running" if not await _matches(database, FINALIZE, job.job):
            return EndStep.WAITS
        case _:
            return await finalise(database, job.job)


async def finish_due_jobs(database: Database, most: int = ANY_SIZE) -> list[int]:
    """Take a step of every due job of at most `most` samples, and all steps of one that only has to be finalised;
    return the jobs that ended.

    This runs after every batch that ended a sample. A job whose step fails does not hold up other jobs: the
    orchestrator tries it again and records the reason.
    """
    ended = []
    for each in await list_due_jobs(database, most):
        try:
            step = await end_job_step(database, each)
            while step is EndStep.MOVED and each.state in ("running", "finalizing"):
                step = await finalise(database, each.job)
            if step is EndStep.ENDED:
                ended.append(each.job)
        except Exception as error:
            if is_passing(error):
                raise
            _log.exception("job %d cannot be brought to its end", each.job)
    return ended


async def record_reason(database: Database, job: int, error: Exception) -> None:
    """Record on the job why it cannot be ended; ending it clears the reason."""
    message = redact(str(error).partition("\n")[0])
    reason = f"cannot be brought to its end, tried again: {type(error).__name__}: {message}"[:500]
    async with database.transaction() as connection:
        await connection.execute(EXPLAIN, {"job": job, "reason": reason})


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


async def start_jobs(connection: AsyncConnection, jobs: Sequence[int], prepared: bytes | None) -> None:
    """Set preparing jobs to running and insert their samples, once."""
    values = {"jobs": list(jobs), "prepared": prepared}
    if started := list((await connection.execute(RUN, values)).scalars()):
        await connection.execute(EXPAND, {"jobs": started})


# Pause and resume jobs. A paused job is neither advanced nor claimed; calls in flight may still finish.
#
# Calls belong to no job: those that no other job waits for leave the queue and return to it when the job resumes.

PAUSE = text("UPDATE jobs SET state = 'paused', version = version + 1 WHERE id = :job")
# An advance that holds ready samples is about to commit calls: wait for it, so that they are parked as well.
AWAIT_ADVANCE = sql("SELECT id FROM samples WHERE job_id = :job AND state = {READY} ORDER BY id FOR NO KEY UPDATE")
RESUME = text("""
    UPDATE jobs SET state = CASE WHEN running_at IS NULL THEN 'preparing' ELSE 'running' END, version = version + 1
    WHERE id = :job""")
PARKED = sql("""
    SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
    WHERE s.job_id = :job AND s.state = {WAITING}
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = t.call_id)
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id)
    ORDER BY 1""")
PAUSED_AT_ONCE = 5000
"""Calls queued again in one transaction."""


async def pause(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Pause the job; pausing it again has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state in RUNNABLE:
            await connection.execute(PAUSE, {"job": job.id})
            await connection.execute(AWAIT_ADVANCE, {"job": job.id})
        elif job.state != "paused":
            raise state_conflict(public_id, job.state, "paused")
    await park_job(database, job.id)


async def resume(database: Database, public_id: uuid.UUID, versions: Collection[int] | None = None) -> None:
    """Resume a paused job; resuming a job that is not paused has no effect.

    Raises:
        NotFound: no such job.
        Conflict: it has ended or is about to.
        PreconditionFailed: the job's version is not among `versions`.
    """
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if job.state == "paused":
            await connection.execute(RESUME, {"job": job.id})
        elif job.state not in RUNNABLE:
            raise state_conflict(public_id, job.state, "resumed")
    async with database.transaction() as connection:
        parked = list((await connection.execute(PARKED, {"job": job.id})).scalars())
    for start in range(0, len(parked), PAUSED_AT_ONCE):
        await revive_calls(database, parked[start : start + PAUSED_AT_ONCE])


# Keep the names of submitted jobs unique, so that a name identifies one job.
#
# Jobs of earlier releases may share a name; they keep it, and no further job gets it. Of two concurrent requests for a
# name, one holds the name's lock until it commits, and the other is asked to repeat its request. Chats need no name.

LOCK_SEED = 7334
"""Distinguishes these advisory locks from others."""
HOLD = text("""
    SELECT name FROM unnest(CAST(:names AS text[])) n(name)
    WHERE NOT pg_try_advisory_xact_lock(hashtextextended(name, :seed))""")
# A separate statement, so that its snapshot is taken after the locks.
TAKEN = text("""
    SELECT name, public_id, state, project FROM jobs
    WHERE name = ANY(:names) AND NOT online AND public_id IS DISTINCT FROM :own ORDER BY id LIMIT 1""")
LONGEST = 100
_NUMBERED = re.compile(r"(?P<name>.+)-r(?P<number>[1-9]\d{0,5})", re.DOTALL)


async def reserve(connection: AsyncConnection, names: Sequence[str], own: uuid.UUID | None = None) -> None:
    """Reserve `names` until the transaction ends; the job `own` may already have one of them.

    Raises:
        Conflict: a job has one of the names; the message says which job.
        InProgress: another request is taking one of them right now.
    """
    if held := await _find_locked(connection, names):
        raise InProgress(f"`name`: another request is using {held!r} right now", hint="send it again in a second")
    taken = await _find_taken(connection, names, own)
    if taken is not None and taken.project not in (None, get_project() or taken.project):
        raise make_name_taken()
    if taken is not None:
        raise Conflict(
            f"`name`: {taken.name!r} is already the name of job {taken.public_id}, which is {taken.state}",
            hint=f"choose another name; `mathrag job show {str(taken.public_id)[:8]}` shows that job,"
            " `mathrag job requeue` runs it again once it has ended",
        )


async def reserve_next(connection: AsyncConnection, name: str, given: Collection[str]) -> str:
    """Reserve and return `name` or its next free number, leaving out those `given` in this transaction."""
    while name in given or not await _is_free(connection, name):
        name = make_next_name(name)
    return name


def make_next_name(name: str) -> str:
    """Return the name's next number: `first` → `first-r2` → `first-r3`."""
    found = _NUMBERED.fullmatch(name)
    base, number = (found["name"], int(found["number"])) if found else (name, 1)
    suffix = f"-r{number + 1}"
    return base[: LONGEST - len(suffix)] + suffix


async def _is_free(connection: AsyncConnection, name: str) -> bool:
    return not await _find_locked(connection, [name]) and await _find_taken(connection, [name], None) is None


async def _find_taken(connection: AsyncConnection, names: Sequence[str], own: uuid.UUID | None) -> Row[Any] | None:
    async with show_all(connection):
        return (await connection.execute(TAKEN, {"names": list(names), "own": own})).first()


async def _find_locked(connection: AsyncConnection, names: Sequence[str]) -> str | None:
    """Lock `names`; return the first one whose lock another transaction holds, if any."""
    found: str | None = (await connection.execute(HOLD, {"names": list(names), "seed": LOCK_SEED})).scalar()
    return found


AMEND = text("""
    UPDATE jobs SET name = COALESCE(:name, name), rank = COALESCE(:rank, rank),
        metadata = COALESCE(CAST(:metadata AS jsonb), metadata), version = version + 1 WHERE id = :job""")
# A call is as urgent as the most urgent sample that waits for it. Rows that are being claimed need no place any more.
UPDATE_PLACES = sql("""
    WITH pending AS MATERIALIZED (
        SELECT q.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        JOIN queue q ON q.call_id = t.call_id AND q.token IS NULL
        WHERE s.job_id = :job AND s.state = {WAITING} ORDER BY q.call_id FOR UPDATE OF q SKIP LOCKED)
    UPDATE queue q SET place = w.place FROM (SELECT DISTINCT call_id FROM pending) p, LATERAL (
        SELECT min({PLACE}) AS place FROM steps t
        JOIN samples s ON {WAITS_FOR_STEP}
        JOIN jobs j ON j.id = s.job_id AND j.state IN {RUNNABLE} WHERE t.call_id = p.call_id) w
    WHERE q.call_id = p.call_id AND q.place <> w.place""")


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """New values; None leaves a field unchanged."""

    name: str | None = None
    """New name, which must be unique."""
    rank: Rank | None = None
    """New priority; it also applies to calls in the queue."""
    metadata: Metadata | None = None
    """New metadata, which replace all earlier ones."""


async def amend(
    database: Database, public_id: uuid.UUID, change: Amendment, versions: Collection[int] | None = None
) -> None:
    """Change the job in any state.

    Raises:
        NotFound: no such job.
        PreconditionFailed: the job's version is not among `versions`.
        Conflict: another job has the name already.
        InProgress: another request is taking the name.
    """
    metadata = None if change.metadata is None else canonical.encode(change.metadata).decode()
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if change.name is not None:
            await reserve(connection, [change.name], public_id)
        values = {"job": job.id, "name": change.name, "rank": change.rank, "metadata": metadata}
        await connection.execute(AMEND, values)
        if change.rank is not None:
            async with show_all(connection):
                await connection.execute(UPDATE_PLACES, {"job": job.id})
