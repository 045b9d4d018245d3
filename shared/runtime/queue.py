"""The queue of model calls: claim calls, answer them, give them back, retry and park them, and find ready samples."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Row, TextClause, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.messages import redact
from shared import canonical
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import RedisLease
from shared.plugins.loading import encode_usable_pins
from shared.replies import BOUNDS, INFRASTRUCTURE, Failure, FailureKind, Reply
from shared.storage.database import (
    Database,
    SampleState,
    concerns_rows,
    fill_names,
    is_passing,
    limit_to,
    retry_through_outage,
    sql,
)

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger(__name__)


class ClaimedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that this worker has claimed."""

    id: int
    key: bytes
    role: str
    model_id: int
    device: str | None = None
    """Device whose guard reaches the model; None if no guard is needed."""
    request: bytes


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Calls claimed under one token."""

    token: uuid.UUID
    calls: tuple[ClaimedCall, ...]
    tries: bool = False
    """Whether this claim probes, for all other calls of the model, if an outage is over."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a call ran; for model calls stamped by the guard alone."""

    started_at: datetime
    ended_at: datetime
    device: str | None = None
    epoch: int | None = None
    concurrency: int | None = None
    prompt_hash: bytes | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    trace_id: str | None = None


class AnsweredCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call's reply as a worker submits it."""

    call_id: int
    reply: Reply
    receipt: Receipt

    @property
    def is_infrastructure(self) -> bool:
        """Return whether the call was not answered at all, so that it is tried again."""
        return isinstance(self.reply, Failure) and self.reply.kind in INFRASTRUCTURE


class Committed(NamedTuple):
    """Result of committing answers."""

    calls: list[int]
    """Calls whose claim was still held."""
    ready: int
    """Samples that became ready by the whole group commit."""


def outcome_name(reply: Reply) -> str:
    """Return what `attempts.outcome` holds for the reply: "value", or the kind of its failure."""
    return reply.kind.value if isinstance(reply, Failure) else "value"


# Claim, answer and release calls: the worker's side of the queue.
#
# A claim is a token on a queue row. Every change of the row requires the token, so a worker that was frozen while its
# claim lapsed changes nothing when it resumes. Queue rows are always locked in call order.

LONGEST_S = 600
"""Longest life of a claim in seconds, longer than any pause. A later deadline was written before the database's clock
was set back, so it is ignored."""
LONGEST_PAUSE_S = 30.0
"""Longest pause between two probes, and the longest time that others wait for a probe to end."""
SUSPECT_LOCK = 7331
"""Advisory lock class: ordinary claims of a model share it, a suspect's claim holds it exclusively."""
SHARE = text("SELECT pg_advisory_xact_lock_shared(:class, :model)")
EXCLUDE = text("SELECT pg_advisory_xact_lock(:class, :model)")
# Whether a live sample waits for call u.id.
WANTED = fill_names("""EXISTS (
        SELECT 1 FROM (SELECT sample_id, position FROM steps WHERE call_id = u.id OFFSET 0) t,
            LATERAL (SELECT job_id, state, position FROM samples WHERE id = t.sample_id OFFSET 0) s,
            LATERAL (SELECT state FROM jobs WHERE id = s.job_id OFFSET 0) j
        WHERE s.state = {WAITING} AND s.position = t.position + 1 AND j.state IN {RUNNABLE})""")
# During an outage of the model's server, one claimed call probes for all others, which wait for the result.
# Picked rows that no live sample waits for leave the queue instead of being claimed.
TAKE = f"""
    , seen AS MATERIALIZED (SELECT u.*, {WANTED} AS wanted FROM picked u),
    claimed AS (
        UPDATE queue SET token = :token, claim_until = now() + make_interval(secs => :ttl)
        WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE wanted))),
    parked AS (DELETE FROM queue WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE NOT wanted))),
    trying AS (
        UPDATE outages SET next_try = now() + make_interval(secs => {LONGEST_PAUSE_S})
        WHERE model_id = :model AND EXISTS (SELECT 1 FROM seen p WHERE p.wanted) RETURNING model_id)
    SELECT c.id, c.key, c.role, c.model_id, m.device, c.request, p.wanted, EXISTS (SELECT 1 FROM trying) AS tries
    FROM seen p, LATERAL (SELECT * FROM calls WHERE id = p.id OFFSET 0) c,
        LATERAL (SELECT device FROM models WHERE id = c.model_id OFFSET 0) m ORDER BY c.id"""  # noqa: S608 - constants
PICK = f"""
    SELECT q.call_id AS id FROM queue q
    WHERE q.lane = :lane AND q.model_id = :model AND q.token IS NULL
      AND (q.not_before IS NULL OR q.not_before <= now()
           OR q.not_before > now() + make_interval(secs => {LONGEST_S}))"""  # noqa: S608 - a constant
BESIDE_OTHERS = f"""{PICK} AND q.lapses = 0
          AND NOT EXISTS (SELECT 1 FROM queue s WHERE s.lane = :lane AND s.model_id = :model AND s.lapses > 0
                          AND s.token IS NOT NULL)"""  # noqa: S608 - constants
DUE = f"o.next_try <= now() OR o.next_try > now() + make_interval(secs => {LONGEST_S})"
CLAIM = text(f"""
    WITH picked AS MATERIALIZED ({BESIDE_OTHERS}
          AND NOT EXISTS (SELECT 1 FROM outages o WHERE o.model_id = :model)
        ORDER BY q.place, q.seq LIMIT :n FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608 - constants
# Each probe takes another call, because a single call may itself be the cause.
CLAIM_TRY = text(f"""
    WITH picked AS MATERIALIZED ({BESIDE_OTHERS}
          AND EXISTS (SELECT 1 FROM outages o WHERE o.model_id = :model AND ({DUE}))
        ORDER BY q.not_before NULLS FIRST, q.place, q.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608
CLAIM_SUSPECT = text(f"""
    WITH picked AS MATERIALIZED ({PICK} AND q.lapses > 0
          AND NOT EXISTS (SELECT 1 FROM queue s WHERE s.lane = :lane AND s.model_id = :model AND s.token IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM outages o WHERE o.model_id = :model AND NOT ({DUE}))
        ORDER BY q.place, q.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608
RELEASE = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, not_before = now() + make_interval(secs => :pause)
    WHERE call_id = ANY(:calls) AND token = :token RETURNING call_id""")
RENEW = text("""
    UPDATE queue SET claim_until = now() + make_interval(secs => :ttl)
    WHERE call_id = ANY(:calls) AND token = :token RETURNING call_id""")


class Claims:
    """The queue as one worker uses it."""

    def __init__(self, database: Database, worker: str, ttl_s: float) -> None:
        self._database = database
        self._ttl = ttl_s
        self._replies = GroupCommit(ReplyStore(database, worker, ttl_s).store)

    async def claim(self, lane: Lane, model_id: int, limit: int, *, away: bool = False) -> Claim | None:
        """Claim up to `limit` calls of one model, or a single suspect if nothing else is pending or in flight.

        During an outage (`away`), claim a single call when the next probe is due.
        """
        ordinary = CLAIM_TRY if away else CLAIM
        return await self._claim(ordinary, SHARE, lane, model_id, limit) or await self._claim(
            CLAIM_SUSPECT, EXCLUDE, lane, model_id, 1
        )

    async def _claim(
        self, statement: TextClause, lock: TextClause, lane: Lane, model_id: int, limit: int
    ) -> Claim | None:
        while True:
            token = uuid.uuid4()
            values = {"lane": lane.value, "model": model_id, "token": token, "ttl": self._ttl, "n": limit}
            rows = await self._take(statement, lock, values)
            # A sample may have started to wait for a call while it was being parked, so check after the commit.
            unwanted = [row.id for row in rows if not row.wanted]
            await retry_through_outage(partial(revive_calls, self._database, unwanted), self._ttl)
            copied = ClaimedCall.__struct_fields__
            calls = tuple(ClaimedCall(**{name: getattr(row, name) for name in copied}) for row in rows if row.wanted)
            if calls:
                return Claim(token=token, calls=calls, tries=any(row.tries for row in rows))
            if not rows:
                return None

    async def _take(self, statement: TextClause, lock: TextClause, values: dict[str, Any]) -> Sequence[Row[Any]]:
        """Return the claimed rows. If the commit's acknowledgement is lost, the token tells whether it happened."""
        rows: Sequence[Row[Any]] = ()
        try:
            async with self._database.transaction() as connection:
                await connection.execute(lock, {"class": SUSPECT_LOCK, "model": values["model"]})
                rows = (await connection.execute(statement, values)).all()
        except SQLAlchemyError as error:
            if not (rows and is_passing(error)):
                raise
            calls = [row.id for row in rows]
            ours = set(await retry_through_outage(lambda: self.renew(values["token"], calls), self._ttl))
            if not ours:
                raise
            return [row for row in rows if row.id in ours or not row.wanted]
        return rows

    async def answer(self, token: uuid.UUID, answers: Sequence[AnsweredCall]) -> Committed:
        """Commit replies, grouped with those of other chunks, then mark the samples ready that have all replies."""
        return await self._replies.submit(PendingAnswers(token, answers))

    async def release(self, token: uuid.UUID, calls: Sequence[int], pause_s: float = 0.2) -> None:
        """Release calls without charging them, because they were not sent."""
        values = {"calls": sorted(calls), "token": token, "pause": pause_s}
        await retry_through_outage(lambda: self._database.column(RELEASE, values), self._ttl)

    async def wait(self, token: uuid.UUID, calls: Sequence[int], model_id: int, what: str, said: str) -> None:
        """Record an outage of a server that the model needs and release the calls without charging them."""

        async def note() -> None:
            async with self._database.transaction() as connection:
                await note_outage(connection, [model_id], what, said)

        await retry_through_outage(note, self._ttl)
        await self.release(token, calls)

    async def end_outage(self, model_id: int) -> None:
        """Record that the model's outage is over, so that all its calls may be claimed."""

        async def end() -> None:
            async with self._database.transaction() as connection:
                await end_outages(connection, [model_id])

        await retry_through_outage(end, self._ttl)

    async def renew(self, token: uuid.UUID, calls: Sequence[int]) -> list[int]:
        """Extend a claim by its time to live; return the calls that this worker still holds."""
        return await self._database.column(RENEW, {"calls": sorted(calls), "token": token, "ttl": self._ttl})


# Commit replies under their claims: accept values, and charge and retry infrastructure failures.

RETRIES = 3
"""Number of infrastructure failures after which a call fails for good."""
BACKOFF_S = (2.0, 15.0)
"""Pause before the second and the third attempt, longer than a service takes to restart."""
ACCEPT = text("""
    WITH locked AS MATERIALIZED (
        SELECT call_id, token FROM queue WHERE call_id = ANY(:calls) AND token = ANY(:tokens)
        ORDER BY call_id FOR UPDATE),
    held AS MATERIALIZED (
        SELECT u.*, l.token AS held_token FROM locked l JOIN unnest(
            CAST(:calls AS bigint[]), CAST(:tokens AS uuid[]), CAST(:outcomes AS text[]), CAST(:replies AS bytea[]),
            CAST(:device AS text[]), CAST(:epoch AS bigint[]), CAST(:started_at AS timestamptz[]),
            CAST(:ended_at AS timestamptz[]), CAST(:concurrency AS smallint[]), CAST(:prompt_hash AS bytea[]),
            CAST(:prompt_tokens AS integer[]), CAST(:cached_tokens AS integer[]), CAST(:completion_tokens AS integer[]),
            CAST(:finish_reason AS text[]), CAST(:prompt_ms AS real[]), CAST(:completion_ms AS real[]),
            CAST(:trace_id AS text[]))
            u(call_id, token, outcome, reply, device, epoch, started_at, ended_at, concurrency, prompt_hash,
              prompt_tokens, cached_tokens, completion_tokens, finish_reason, prompt_ms, completion_ms, trace_id)
        ON u.call_id = l.call_id AND u.token = l.token),
    gone AS (DELETE FROM queue WHERE call_id = ANY(ARRAY(SELECT call_id FROM held)))
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, device, epoch, started_at, ended_at,
                          concurrency, prompt_hash, prompt_tokens, cached_tokens, completion_tokens, finish_reason,
                          prompt_ms, completion_ms, trace_id)
    SELECT call_id, true, held_token, outcome, reply, :worker, device, epoch, started_at, ended_at, concurrency,
           prompt_hash, prompt_tokens, cached_tokens, completion_tokens, finish_reason, prompt_ms, completion_ms,
           trace_id FROM held
    ON CONFLICT (call_id) WHERE accepted DO NOTHING RETURNING call_id""")
ACCEPTED = sql("""
    SELECT u.call_id FROM unnest(CAST(:calls AS bigint[]), CAST(:tokens AS uuid[])) u(call_id, token),
        LATERAL (SELECT a.token FROM attempts a WHERE {ACCEPTED_FOR} u.call_id OFFSET 0) a WHERE a.token = u.token""")
LOCK = text(
    "SELECT call_id, tries FROM queue WHERE call_id = ANY(:calls) AND token = :token ORDER BY call_id FOR UPDATE"
)
REJECT = text("""
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, device, epoch, started_at, ended_at)
    VALUES (:call, :accepted, :token, :outcome, :reply, :worker, :device, :epoch, :started, :ended)""")
RETRY = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, tries = tries + 1,
        not_before = now() + make_interval(secs => :backoff) WHERE call_id = :call""")
DELETE_CALLS = text("DELETE FROM queue WHERE call_id = ANY(:calls)")
FAILED = text("UPDATE calls SET failed = true WHERE id = ANY(:calls)")


class PendingAnswers(NamedTuple):
    """Answers that wait for a group commit."""

    token: uuid.UUID
    answers: Sequence[AnsweredCall]


ClaimedAnswer = tuple[uuid.UUID, AnsweredCall]
"""An answer, with the token of its claim."""


class ReplyStore:
    """Commits the replies of one worker."""

    def __init__(self, database: Database, worker: str, ttl_s: float) -> None:
        self._database = database
        self._worker = worker
        self._ttl = ttl_s

    async def store(self, together: Sequence[PendingAnswers]) -> list[Committed]:
        """Commit these answers as a group; return their results in order."""
        whole = [(each.token, reply) for each in together for reply in each.answers if not reply.is_infrastructure]
        accepted = await isolate(whole, self._accept, self._refuse) if whole else []
        done = [call for each in accepted if isinstance(each, list) for call in each]
        refused = [each for each in accepted if isinstance(each, tuple)]
        charged: list[int] = []
        for token, answers in together:
            broken = [answer for answer in answers if answer.is_infrastructure]
            broken += [answer for claimed, answer in refused if claimed == token]
            if broken:
                charged += await retry_through_outage(partial(self._retry, token, broken), self._ttl)
        ready = (
            await retry_through_outage(lambda: mark_ready_samples(self._database, done + charged), self._ttl)
            if done or charged
            else []
        )
        kept = {*done, *charged}
        return [
            Committed([answer.call_id for answer in answers if answer.call_id in kept], len(ready))
            for _, answers in together
        ]

    async def _accept(self, answers: Sequence[ClaimedAnswer]) -> list[int] | ClaimedAnswer:
        """Store replies; return the calls whose claim was still held."""
        answers = sorted(answers, key=lambda pair: pair[1].call_id)
        tokens = [token for token, _ in answers]
        values = {"tokens": tokens, "worker": self._worker, **to_columns([answer for _, answer in answers])}
        try:
            return await self._database.column(ACCEPT, values)
        except SQLAlchemyError as error:
            if not is_passing(error):
                raise
        # The commit's result is unknown: repeat it, and count the replies that either attempt has stored.
        await retry_through_outage(lambda: self._database.column(ACCEPT, values), self._ttl)
        stored = {"calls": values["calls"], "tokens": tokens}
        return await retry_through_outage(lambda: self._database.column(ACCEPTED, stored), self._ttl)

    async def _refuse(self, answer: ClaimedAnswer, error: Exception) -> list[int] | ClaimedAnswer:
        """Return a failure in place of a reply that cannot be stored."""
        token, call = answer
        _log.error("the reply to call %d cannot be stored", call.call_id, exc_info=error)
        message = redact(f"{type(error).__name__}: {error}".partition("\n")[0])
        failure = Failure(kind=FailureKind.BACKEND_ERROR, detail=f"the reply cannot be stored: {message}"[:500])
        receipt = Receipt(started_at=call.receipt.started_at, ended_at=call.receipt.ended_at)
        return token, AnsweredCall(call_id=call.call_id, reply=failure, receipt=receipt)

    async def _retry(self, token: uuid.UUID, answers: Sequence[AnsweredCall]) -> list[int]:
        """Charge infrastructure failures; return the charged calls."""
        by_call = {answer.call_id: answer for answer in answers}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(LOCK, {"calls": sorted(by_call), "token": token})).all()
            for row in rows:
                answer = by_call[row.call_id]
                exceeds_bounds = isinstance(answer.reply, Failure) and answer.reply.kind in BOUNDS
                final = exceeds_bounds or row.tries + 1 >= RETRIES
                rejection = {
                    "call": answer.call_id,
                    "accepted": final,
                    "token": token,
                    "outcome": outcome_name(answer.reply),
                    "reply": canonical.encode(answer.reply),
                    "worker": self._worker,
                    "device": answer.receipt.device,
                    "epoch": answer.receipt.epoch,
                    "started": answer.receipt.started_at,
                    "ended": answer.receipt.ended_at,
                }
                await connection.execute(REJECT, rejection)
                if final:
                    await connection.execute(DELETE_CALLS, {"calls": [row.call_id]})
                    await connection.execute(FAILED, {"calls": [row.call_id]})
                else:
                    await connection.execute(RETRY, {"call": row.call_id, "backoff": BACKOFF_S[row.tries]})
        return [row.call_id for row in rows]


def to_columns(answers: Sequence[AnsweredCall]) -> dict[str, object]:
    """Convert answers to the array parameters of one SQL statement; those of the receipts have their names."""
    return {
        "calls": [answer.call_id for answer in answers],
        "outcomes": [outcome_name(answer.reply) for answer in answers],
        "replies": [canonical.encode(answer.reply) for answer in answers],
        **{name: [getattr(answer.receipt, name) for answer in answers] for name in Receipt.__struct_fields__},
    }


# Work in batches: several items in one run, and a member that stops its batch alone.


class GroupCommit(Generic[T, R]):
    """Calls `run`, which returns one result per item in order, one run at a time and without a timer."""

    def __init__(self, run: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._run = run
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """Return the item's result or raise the error of its run. A cancelled caller does not stop the run."""
        waiting: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, waiting))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._serve())
        return await waiting

    async def _serve(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            try:
                results = await self._run([item for item, _ in together])
            except Exception as error:  # noqa: BLE001 - every waiting caller gets the error
                for _, waiting in together:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for (_, waiting), result in zip(together, results, strict=True):
                    if not waiting.done():
                        waiting.set_result(result)


async def isolate(
    batch: Sequence[T],
    run: Callable[[Sequence[T]], Awaitable[R]],
    fail: Callable[[T, Exception], Awaitable[R]],
    *,
    is_defect: Callable[[Exception], bool] = concerns_rows,
    is_open: Callable[[T], bool] = lambda _: True,
    stopped: Exception | None = None,
) -> list[R]:
    """Run a batch so that a member that cannot be run fails alone.

    If `run` raises an error that is a defect of the members, the two halves of those that are still open run
    separately, and so on; `fail` gets the member that raises alone, and its error. `stopped` is the error of a batch
    that has already run as a whole.
    """
    if stopped is None:
        try:
            return [await run(batch)]
        except Exception as error:
            if not is_defect(error):
                raise
            stopped = error
    if len(batch) == 1:
        return [await fail(batch[0], stopped)]
    left = [each for each in batch if is_open(each)]
    middle = len(left) // 2
    return [
        result
        for half in (left[:middle], left[middle:])
        if half
        for result in await isolate(half, run, fail, is_defect=is_defect, is_open=is_open)
    ]


# Mark samples ready: write, commit, then derive readiness, never inside the transaction that may have caused it.
#
# Every statement here is idempotent, so the sweeper runs the same ones without a filter. Each runs in a transaction of
# its own: of two writers that cannot see each other's uncommitted rows, the one that commits last sees both.

# A sample is locked only if it has all replies in a snapshot that is younger than the commit before this statement, so
# the last of several replies finds it, regardless of the others. Comparing the position prevents a decision about a
# later wait of the same sample after the lock had to be waited for. `+` keeps the planner from reading all waiting
# samples by the index on job and state.
MARK_READY = fill_names("""
    , complete AS MATERIALIZED (
        SELECT w.id, w.position
        FROM waiting w, LATERAL (SELECT state, position FROM samples WHERE id = w.id OFFSET 0) s
        WHERE s.state = {WAITING} AND s.position = w.position AND NOT EXISTS (
            SELECT 1 FROM steps t WHERE t.sample_id = w.id AND t.position = w.position - 1
            AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id OFFSET 0) OFFSET 0)),
    ready AS MATERIALIZED (
        SELECT s.id FROM samples s WHERE s.id = ANY(ARRAY(SELECT id FROM complete)) AND +s.state = {WAITING}
            AND EXISTS (SELECT 1 FROM complete c WHERE c.id = s.id AND c.position = s.position OFFSET 0)
        ORDER BY s.id FOR NO KEY UPDATE)
    UPDATE samples SET state = {READY} WHERE id = ANY(ARRAY(SELECT id FROM ready)) RETURNING id""")
LOOK = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT DISTINCT t.sample_id AS id, t.position + 1 AS position FROM unnest(CAST(:calls AS bigint[])) u(call_id),
            LATERAL (SELECT sample_id, position FROM steps WHERE call_id = u.call_id OFFSET 0) t){MARK_READY}""")  # noqa: S608
LOOK_AT = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT id, position FROM samples WHERE id = ANY(:ids) AND +state = {SampleState.WAITING}){MARK_READY}""")  # noqa: S608
COMPLETE = sql("""
    SELECT s.id FROM jobs j, LATERAL (
        SELECT id, position FROM samples WHERE job_id = j.id AND state = {WAITING} OFFSET 0) s
    WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE} AND NOT EXISTS (
        SELECT 1 FROM steps t WHERE {AWAITED_BY_SAMPLE}
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id OFFSET 0) OFFSET 0)
    ORDER BY s.id LIMIT 1000""")
# A call without a queue row and without an accepted attempt was parked; a live waiter revives it. Lapses are counted
# from the attempts, so parking does not clear the record of a suspect.
REVIVE = sql("""
    INSERT INTO queue (lane, model_id, place, call_id, lapses)
    SELECT c.lane, c.model_id, w.place, c.id,
           (SELECT count(*) FROM attempts a WHERE a.call_id = c.id AND NOT a.accepted AND a.outcome = 'lapsed')
    FROM (SELECT * FROM calls WHERE id = ANY(:calls)
          AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} calls.id OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = calls.id OFFSET 0) OFFSET 0) c,
        LATERAL (
            SELECT min({PLACE}) AS place
            FROM (SELECT sample_id, position FROM steps WHERE call_id = c.id OFFSET 0) t,
                LATERAL (SELECT * FROM samples WHERE id = t.sample_id OFFSET 0) s,
                LATERAL (SELECT * FROM jobs WHERE id = s.job_id OFFSET 0) j
            WHERE s.state = {WAITING} AND s.position = t.position + 1 AND j.state IN {RUNNABLE}) w
    WHERE NOT c.failed AND w.place IS NOT NULL ORDER BY c.id
    ON CONFLICT (call_id) DO NOTHING RETURNING call_id""")
ORPHANS = sql("""
    SELECT DISTINCT t.call_id FROM jobs j,
        LATERAL (SELECT id, position FROM samples WHERE job_id = j.id AND state = {WAITING} OFFSET 0) s,
        LATERAL (SELECT t.call_id FROM steps t WHERE {AWAITED_BY_SAMPLE} OFFSET 0) t
    WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE}
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = t.call_id OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} t.call_id OFFSET 0)
    ORDER BY 1 LIMIT 1000""")


async def mark_ready_samples(database: Database, calls: Sequence[int]) -> list[int]:
    """Mark the samples ready that wait for any of `calls` and have all replies; return their ids."""
    async with database.statement() as connection:
        return list((await connection.execute(LOOK, {"calls": sorted(calls)})).scalars())


async def mark_ready_among(database: Database, samples: Sequence[int]) -> list[int]:
    """Mark those of `samples` ready that have all replies, after an advance has recorded the calls that they wait
    for."""
    async with database.statement() as connection:
        return list((await connection.execute(LOOK_AT, {"ids": sorted(samples)})).scalars())


async def find_complete_samples(connection: AsyncConnection) -> list[int]:
    """Return samples, at most 1,000, that have all replies and are not marked ready yet: a process is about to mark
    them, or died before it did.
    """
    return list((await connection.execute(COMPLETE)).scalars())


async def revive_calls(database: Database, calls: Sequence[int]) -> list[int]:
    """Queue those of `calls` again that are parked although a live sample waits for them, in its place."""
    if not calls:
        return []
    # Samples of all projects may wait for a call.
    with limit_to(None):
        async with database.transaction() as connection:
            return list((await connection.execute(REVIVE, {"calls": sorted(calls)})).scalars())


# Park calls that no live sample waits for: they leave the queue until `revive_calls` queues them again.

PARK = text(f"""
    DELETE FROM queue WHERE token IS NULL AND call_id = ANY(ARRAY(
        SELECT u.id FROM unnest(CAST(:calls AS bigint[])) u(id) WHERE NOT {WANTED})) RETURNING call_id""")  # noqa: S608
# Calls for which samples of a cancelling job waited, and for which samples of a paused job wait.
PENDING = sql("""
    SELECT q.call_id FROM queue q WHERE q.token IS NULL AND q.call_id = ANY(ARRAY(
        SELECT t.call_id FROM unnest(CAST(:samples AS bigint[])) u(id),
            LATERAL (SELECT * FROM samples WHERE id = u.id OFFSET 0) s,
            LATERAL (SELECT * FROM jobs WHERE id = s.job_id OFFSET 0) j,
            LATERAL (SELECT t.call_id FROM steps t WHERE {AWAITED_BY_SAMPLE} OFFSET 0) t
        WHERE j.ended_at IS NULL
          AND s.state = CASE j.state WHEN 'paused' THEN {WAITING} WHEN 'cancelling' THEN {CANCELLED} END))
    ORDER BY q.call_id FOR UPDATE SKIP LOCKED""")
PAUSED = text("SELECT id FROM jobs WHERE ended_at IS NULL AND state = 'paused' ORDER BY id")
# Follows the index of the samples' key, so that a job of any size is scanned once.
WALK = text("""
    SELECT id, kind, ordinal, repeat FROM samples
    WHERE job_id = :job AND (kind, ordinal, repeat) > (:kind, :ordinal, :repeat)
    ORDER BY kind, ordinal, repeat LIMIT :n""")
BATCH = 2000
"""Samples whose calls are parked in one transaction."""


async def park_paused(database: Database) -> None:
    """Park the pending calls of paused jobs, except those that a live sample waits for.

    Those of a cancelling job are parked with its samples by whoever ends it.
    """
    async with database.statement() as connection:
        jobs = list((await connection.execute(PAUSED)).scalars())
    for job in jobs:
        await park_job(database, job)


async def park_job(database: Database, job: int) -> None:
    """Park the pending calls of one job in batches, each in its own transaction."""
    values = {"job": job, "kind": "", "ordinal": -1, "repeat": -1, "n": BATCH}
    rows = await _walk(database, values)
    while rows:
        await park(database, [row.id for row in rows])
        values |= {"kind": rows[-1].kind, "ordinal": rows[-1].ordinal, "repeat": rows[-1].repeat}
        rows = await _walk(database, values) if len(rows) == BATCH else []


async def park(database: Database, samples: Sequence[int]) -> None:
    """Park the pending calls of these samples."""
    with limit_to(None):
        async with database.transaction() as connection:
            pending = list((await connection.execute(PENDING, {"samples": sorted(samples)})).scalars())
            parked = list((await connection.execute(PARK, {"calls": pending})).scalars()) if pending else []
    # A sample may have started to wait for a call while it was being parked, so check after the commit.
    await revive_calls(database, parked)


async def _walk(database: Database, values: Mapping[str, object]) -> Sequence[Row[Any]]:
    async with database.statement() as connection:
        return (await connection.execute(WALK, values)).all()


# Outages of shared services: a search engine, a model server, a device that cannot be loaded.
#
# An outage belongs to a model, never to a call. The model's calls wait in the queue without a charge, and one call at a
# time probes whether the server is back. A call fails as `unavailable` after waiting for `workers.outage_s`.

OUTAGES_AT_ONCE = 1000
"""Calls failed in one transaction."""
# The pause is a quarter of the outage's duration, between one second and the longest pause.
NOTE = text(f"""
    INSERT INTO outages AS o (model_id, what, said, tried_at, next_try)
    SELECT u.id, :what, :said, now(), now() + make_interval(secs => COALESCE(CAST(:pause AS float), 1))
    FROM unnest(CAST(:models AS integer[])) u(id) ORDER BY u.id
    ON CONFLICT (model_id) DO UPDATE SET what = excluded.what, said = excluded.said, tried_at = now(),
        next_try = now() + COALESCE(make_interval(secs => CAST(:pause AS float)),
            LEAST(GREATEST((now() - o.since) / 4, interval '1 s'), interval '{LONGEST_PAUSE_S} s'))""")  # noqa: S608 - a constant
HASTEN = text("UPDATE outages SET next_try = now() WHERE model_id = ANY(:models) AND next_try > now()")
END = text("DELETE FROM outages WHERE model_id = ANY(:models)")
FORGET = text("""
    DELETE FROM outages o WHERE NOT EXISTS (
        SELECT 1 FROM unnest(CAST(:lanes AS text[])) l(lane)
        JOIN queue q ON q.lane = l.lane AND q.model_id = o.model_id)""")
OVERDUE = text("""
    SELECT q.call_id, o.what, o.said, GREATEST(o.since, q.queued_at) AS since, o.tried_at
    FROM outages o CROSS JOIN unnest(CAST(:lanes AS text[])) l(lane)
    JOIN queue q ON q.lane = l.lane AND q.model_id = o.model_id AND q.token IS NULL
    WHERE o.tried_at >= o.since + make_interval(secs => :outage)
      AND o.tried_at >= q.queued_at + make_interval(secs => :outage)
    ORDER BY q.call_id LIMIT :n FOR UPDATE OF q SKIP LOCKED""")
# A revival that raced with the reply can leave a queue row of an answered call, which is not charged.
FAIL = text("""
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, started_at, ended_at)
    SELECT u.call_id, true, :token, :outcome, u.reply, :worker, u.started, u.ended
    FROM unnest(CAST(:calls AS bigint[]), CAST(:replies AS bytea[]), CAST(:started AS timestamptz[]),
                CAST(:ended AS timestamptz[])) u(call_id, reply, started, ended)
    ON CONFLICT (call_id) WHERE accepted DO NOTHING RETURNING call_id""")


async def note_outage(
    connection: AsyncConnection, models: Sequence[int], what: str, said: str, pause_s: float | None = None
) -> None:
    """Record an outage of what these models need. `pause_s` is the time until the next probe; None uses the rule."""
    values = {"models": sorted(models), "what": redact(what), "said": redact(said)[:500], "pause": pause_s}
    await connection.execute(NOTE, values)


async def retry_device(database: Database, lease: RedisLease, device: str) -> bool:
    """Have a quarantined device tried again at once; false if it is not quarantined.

    Its failures in a row still count, so the pause after another failure is not shorter.

    Raises:
        RedisError: Redis does not answer; no flip would begin either.
    """
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, device)
        if newest is None or newest.state != "quarantined":
            return False
        await connection.execute(HASTEN, {"models": sorted(newest.models)})
    await lease.request_retry(newest.epoch)
    return True


async def end_outages(connection: AsyncConnection, models: Sequence[int]) -> None:
    """Record that the outage of these models is over, so that their calls may be claimed."""
    await connection.execute(END, {"models": sorted(models)})


async def sweep_outages(database: Database, worker: str, outage_s: float) -> list[int]:
    """Fail calls that waited for too long and forget outages without waiting calls; return the failed calls."""
    lanes = [lane.value for lane in Lane]
    # Fail the calls that had waited for `outage_s` at the last failed probe of their server.
    failed: list[int] = []
    while calls := await _fail_some(database, worker, lanes, outage_s):
        await mark_ready_samples(database, calls)
        failed += calls
    async with database.transaction() as connection:
        await connection.execute(FORGET, {"lanes": lanes})
    return failed


async def _fail_some(database: Database, worker: str, lanes: Sequence[str], outage_s: float) -> list[int]:
    async with database.transaction() as connection:
        values = {"lanes": list(lanes), "outage": outage_s, "n": OUTAGES_AT_ONCE}
        rows = (await connection.execute(OVERDUE, values)).all()
        if not rows:
            return []
        replies = []
        for row in rows:
            waited_s = (row.tried_at - row.since).total_seconds()
            since = row.since.astimezone(UTC).strftime("%H:%M:%S")
            message = f"waited {waited_s:.0f} s for {row.what}, since {since} UTC: {row.said}"
            replies.append(canonical.encode(Failure(kind=FailureKind.UNAVAILABLE, detail=message[:500])))
        calls = [row.call_id for row in rows]
        attempts = {
            "calls": calls,
            "token": uuid.uuid4(),  # this transaction claims and answers them
            "outcome": FailureKind.UNAVAILABLE.value,
            "replies": replies,
            "worker": worker,
            "started": [row.since for row in rows],
            "ended": [row.tried_at for row in rows],
        }
        failed = list((await connection.execute(FAIL, attempts)).scalars())
        await connection.execute(DELETE_CALLS, {"calls": calls})
        await connection.execute(FAILED, {"calls": sorted(failed)})
    return calls


# Lapse claims whose worker is gone: the call becomes a suspect, and after the third lapse poison.

LAPSES = 3
"""Number of lapsed claims after which a call counts as poison."""
# SKIP LOCKED: a transaction that holds the row is answering the call.
EXPIRED = text(f"""
    SELECT call_id, lapses, token FROM queue
    WHERE token IS NOT NULL AND (claim_until < now() OR claim_until > now() + make_interval(secs => {LONGEST_S}))
    ORDER BY call_id LIMIT 1000 FOR UPDATE SKIP LOCKED""")  # noqa: S608 - a constant
# A revival that raced with the reply can leave a queue row of an answered call: drop it without a charge.
DROP_ANSWERED = sql("""
    DELETE FROM queue q WHERE q.call_id = ANY(:calls)
        AND EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} q.call_id OFFSET 0) RETURNING q.call_id""")
HELD = text("""
    SELECT call_id, lapses, token FROM queue WHERE call_id = ANY(:calls) AND token = :token
    ORDER BY call_id FOR UPDATE""")
CHARGE = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, lapses = lapses + 1 WHERE call_id = ANY(:calls)""")
RECORD = text("""
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker)
    SELECT u.call_id, u.accepted, u.token, u.outcome, u.reply, :worker
    FROM unnest(CAST(:calls AS bigint[]), CAST(:accepted AS boolean[]), CAST(:tokens AS uuid[]),
                CAST(:outcomes AS text[]), CAST(:replies AS bytea[])) u(call_id, accepted, token, outcome, reply)""")


async def lapse_expired(database: Database, worker: str) -> list[int]:
    """Charge every claim past its deadline (by the database's clock); return the calls that became poison."""
    return await _charge(database, worker, EXPIRED, {})


async def lapse(database: Database, worker: str, token: uuid.UUID, calls: Sequence[int]) -> list[int]:
    """Charge calls whose model server or guard died while they ran; return those that became poison."""
    return await _charge(database, worker, HELD, {"calls": sorted(calls), "token": token})


async def _charge(
    database: Database, worker: str, select_claims: TextClause, values: Mapping[str, object]
) -> list[int]:
    async with database.transaction() as connection:
        claimed = (await connection.execute(select_claims, values)).all()
        if not claimed:
            return []
        dropped = await connection.execute(DROP_ANSWERED, {"calls": [row.call_id for row in claimed]})
        answered = set(dropped.scalars())
        rows = [row for row in claimed if row.call_id not in answered]
        poisoned = [row.call_id for row in rows if row.lapses + 1 >= LAPSES]
        replies = []
        for row in rows:
            lapses = row.lapses + 1
            claims = f"{lapses} claim{'s' if lapses > 1 else ''} of this call lapsed"
            left = "" if lapses >= LAPSES else f"; after {LAPSES} it fails as {FailureKind.POISONED}"
            replies.append(canonical.encode(Failure(kind=FailureKind.POISONED, detail=claims + left)))
        await connection.execute(
            RECORD,
            {
                "calls": [row.call_id for row in rows],
                "accepted": [row.call_id in poisoned for row in rows],
                "tokens": [row.token for row in rows],
                "outcomes": [FailureKind.POISONED if row.call_id in poisoned else "lapsed" for row in rows],
                "replies": replies,
                "worker": worker,
            },
        )
        await connection.execute(CHARGE, {"calls": [row.call_id for row in rows if row.call_id not in poisoned]})
        await connection.execute(DELETE_CALLS, {"calls": poisoned})
    if poisoned:
        await mark_ready_samples(database, poisoned)
    return poisoned


# The sweeper: complete work that a crash or a lost message may have left undone, found from the rows alone.

PENDING_LANES = text("""
    SELECT l.lane FROM unnest(CAST(:lanes AS text[])) l(lane) WHERE EXISTS (
        SELECT 1 FROM models m WHERE EXISTS (
            SELECT 1 FROM queue WHERE lane = l.lane AND model_id = m.id AND token IS NULL OFFSET 0) OFFSET 0)""")
# An ended calibration is work as well: its job's samples must be inserted.
# Starts from live jobs, because a paused or cancelled job may have hundreds of thousands of ready samples. `+` makes
# the planner find the few samples that prepare a job by their kind.
READY = sql("""
    SELECT EXISTS (SELECT 1 FROM jobs j WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE} AND {HAS_PLUGINS}
                   AND EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state = {READY} OFFSET 0))
        OR EXISTS (SELECT 1 FROM jobs j WHERE j.ended_at IS NULL AND j.state = 'preparing'
                   AND EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare'
                               AND +s.state IN {DONE} OFFSET 0))""")


async def any_ready(connection: AsyncConnection) -> bool:
    """Tell whether a sample can be advanced, or a job's samples are about to come."""
    return bool((await connection.execute(READY, {"plugins": encode_usable_pins()})).scalar())


async def sweep(database: Database, worker: str) -> set[Lane]:
    """Lapse dead claims, mark complete samples ready, and park and revive calls as needed.

    Returns the lanes that need a tick.
    """
    await lapse_expired(database, worker)
    async with database.transaction() as connection:
        complete = await find_complete_samples(connection)
    if complete:
        await mark_ready_among(database, complete)
    await park_paused(database)
    async with database.transaction() as connection:
        orphans = list((await connection.execute(ORPHANS)).scalars())
    await revive_calls(database, orphans)
    return await lanes_with_work(database)


async def lanes_with_work(database: Database) -> set[Lane]:
    """Return the lanes with pending calls; a ready sample counts for the judge's lane, whose worker advances it."""
    async with database.transaction() as connection:
        found = await connection.execute(PENDING_LANES, {"lanes": [lane.value for lane in Lane]})
        lanes = {Lane(lane) for lane in found.scalars()}
        return lanes | ({Lane.JUDGE} if await any_ready(connection) else set())
