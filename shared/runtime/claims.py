"""Claim calls, answer them, give them back: the worker's side of the queue.

A claim is a token on a queue row. Whatever changes the row asks for the token, so a worker that was frozen while its
claim lapsed changes nothing when it wakes. Queue rows are always locked in call order.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts import canonical
from shared.contracts.calls import Lane
from shared.runtime import outages
from shared.runtime.answers import Answered, columns, outcome_of, unstorable
from shared.runtime.look import look, revive
from shared.runtime.outages import LONGEST_PAUSE_S
from shared.runtime.parking import WANTED
from shared.runtime.together import Together
from shared.storage.database import Database
from shared.storage.outages import again, concerns_rows, passing
from shared.storage.sql import sql

RETRIES = 3
"""Infrastructure failures of one call before it fails for good."""
BACKOFF_S = (2.0, 15.0)
"""Wait before the second and the third try: longer than a service takes to come back."""
LAPSES = 3
"""Claims of one call that may lapse before it is poison."""
LONGEST_S = 600
"""Longest life of a claim, and more than any pause: what ends later was written before the database's clock went back,
and nobody waits for that."""

SUSPECT_LOCK = 7331
"""Advisory lock class: shared by ordinary claims of a model, exclusive for a suspect's."""

SHARE = text("SELECT pg_advisory_xact_lock_shared(:class, :model)")
EXCLUDE = text("SELECT pg_advisory_xact_lock(:class, :model)")
# Where what the model needs was away, whoever claims a call of it tries for all; the others wait for that.
# Of the rows that were picked, those that nobody live waits for leave the queue instead of being claimed.
TAKE = f"""
    , seen AS MATERIALIZED (SELECT u.*, {WANTED} AS wanted FROM picked u),
    claimed AS (
        UPDATE queue q SET token = :token, claim_until = now() + make_interval(secs => :ttl) FROM seen p
        WHERE q.lane = p.lane AND q.model_id = p.model_id AND q.rank = p.rank AND q.seq = p.seq AND p.wanted),
    parked AS (
        DELETE FROM queue q USING seen p
        WHERE q.lane = p.lane AND q.model_id = p.model_id AND q.rank = p.rank AND q.seq = p.seq AND NOT p.wanted),
    trying AS (
        UPDATE outages SET next_try = now() + make_interval(secs => {LONGEST_PAUSE_S})
        WHERE model_id = :model AND EXISTS (SELECT 1 FROM seen p WHERE p.wanted) RETURNING model_id)
    SELECT c.id, c.key, c.role, c.model_id, m.device, c.request, p.wanted, EXISTS (SELECT 1 FROM trying) AS tries
    FROM seen p JOIN calls c ON c.id = p.id JOIN models m ON m.id = c.model_id ORDER BY c.id"""  # noqa: S608 - constants
PICK = f"""
    SELECT q.lane, q.model_id, q.rank, q.seq, q.call_id AS id FROM queue q
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
        ORDER BY q.rank, q.seq LIMIT :n FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608 - constants
# Another call each time, as it may be the one that is at fault.
CLAIM_TRY = text(f"""
    WITH picked AS MATERIALIZED ({BESIDE_OTHERS}
          AND EXISTS (SELECT 1 FROM outages o WHERE o.model_id = :model AND ({DUE}))
        ORDER BY q.not_before NULLS FIRST, q.rank, q.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608
CLAIM_SUSPECT = text(f"""
    WITH picked AS MATERIALIZED ({PICK} AND q.lapses > 0
          AND NOT EXISTS (SELECT 1 FROM queue s WHERE s.lane = :lane AND s.model_id = :model AND s.token IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM outages o WHERE o.model_id = :model AND NOT ({DUE}))
        ORDER BY q.rank, q.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED){TAKE}""")  # noqa: S608
ACCEPT = text("""
    WITH locked AS MATERIALIZED (
        SELECT q.call_id, q.token FROM unnest(CAST(:calls AS bigint[]), CAST(:tokens AS uuid[])) u(call_id, token)
        JOIN queue q ON q.call_id = u.call_id AND q.token = u.token ORDER BY q.call_id FOR UPDATE OF q),
    gone AS (DELETE FROM queue q USING locked l WHERE q.call_id = l.call_id)
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, device, epoch, started_at, ended_at,
                          concurrency, prompt_hash, prompt_tokens, completion_tokens, finish_reason, prompt_ms,
                          completion_ms, trace_id)
    SELECT l.call_id, true, l.token, u.outcome, u.reply, :worker, u.device, u.epoch, u.started_at, u.ended_at,
           u.concurrency, u.prompt_hash, u.prompt_tokens, u.completion_tokens, u.finish_reason,
           u.prompt_ms, u.completion_ms, u.trace_id
    FROM locked l JOIN unnest(
        CAST(:calls AS bigint[]), CAST(:outcomes AS text[]), CAST(:replies AS bytea[]), CAST(:devices AS text[]),
        CAST(:epochs AS bigint[]), CAST(:started AS timestamptz[]), CAST(:ended AS timestamptz[]),
        CAST(:concurrency AS smallint[]), CAST(:prompt_hashes AS bytea[]), CAST(:prompt_tokens AS integer[]),
        CAST(:completion_tokens AS integer[]), CAST(:finish_reasons AS text[]), CAST(:prompt_ms AS real[]),
        CAST(:completion_ms AS real[]), CAST(:trace_ids AS text[]))
        u(call_id, outcome, reply, device, epoch, started_at, ended_at, concurrency, prompt_hash, prompt_tokens,
          completion_tokens, finish_reason, prompt_ms, completion_ms, trace_id) ON u.call_id = l.call_id
    ON CONFLICT (call_id) WHERE accepted DO NOTHING RETURNING call_id""")
ACCEPTED = sql("""
    SELECT a.call_id FROM unnest(CAST(:calls AS bigint[]), CAST(:tokens AS uuid[])) u(call_id, token)
    JOIN attempts a ON {ACCEPTED_FOR} u.call_id AND a.token = u.token""")

LOCK = text(
    "SELECT call_id, tries FROM queue WHERE call_id = ANY(:calls) AND token = :token ORDER BY call_id FOR UPDATE"
)
REJECT = text("""
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, device, epoch, started_at, ended_at)
    VALUES (:call, :accepted, :token, :outcome, :reply, :worker, :device, :epoch, :started, :ended)""")
RETRY = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, tries = tries + 1,
        not_before = now() + make_interval(secs => :backoff) WHERE call_id = :call""")
GONE = text("DELETE FROM queue WHERE call_id = :call")
FAILED = text("UPDATE calls SET failed = true WHERE id = :call")

RELEASE = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, not_before = now() + make_interval(secs => :pause)
    WHERE call_id = ANY(:calls) AND token = :token RETURNING call_id""")
RENEW = text("""
    UPDATE queue SET claim_until = now() + make_interval(secs => :ttl)
    WHERE call_id = ANY(:calls) AND token = :token RETURNING call_id""")


_log = logging.getLogger(__name__)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A call that this worker holds."""

    id: int
    key: bytes
    role: str
    model_id: int
    device: str | None = None
    """Whose guard reaches the model; None: none is needed."""
    request: bytes


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Calls claimed together, under one token."""

    token: uuid.UUID
    calls: tuple[Claimed, ...]
    tries: bool = False
    """Whether what the model needs was away, and this claim tries for all others whether it is back."""


class Committed(NamedTuple):
    """What became of answers."""

    calls: list[int]
    """Those whose claim was still ours."""
    ready: int
    """Samples that lack no reply now, for all that was committed together."""


class Handed(NamedTuple):
    """Answers that wait for their commit."""

    token: uuid.UUID
    answers: Sequence[Answered]


class Claims:
    """The queue, for one worker."""

    def __init__(self, database: Database, worker: str, ttl_s: float) -> None:
        self._database = database
        self._worker = worker
        self._ttl = ttl_s
        self._answers = Together(self._store)

    async def claim(self, lane: Lane, model_id: int, limit: int, *, away: bool = False) -> Claim | None:
        """Up to `limit` calls of one model, or a single suspect when nothing else is pending or in flight.

        While what it needs is `away`: one call, when it is time to try again.
        """
        ordinary = CLAIM_TRY if away else CLAIM
        return await self._claim(ordinary, SHARE, lane, model_id, limit) or await self._claim(
            CLAIM_SUSPECT, EXCLUDE, lane, model_id, 1
        )

    async def _claim(
        self, statement: TextClause, lock: TextClause, lane: Lane, model_id: int, limit: int
    ) -> Claim | None:
        token = uuid.uuid4()
        values = {"lane": lane.value, "model": model_id, "token": token, "ttl": self._ttl}
        values |= {"n": limit} if statement is CLAIM else {}
        rows = await self._take(statement, lock, values)
        # A waiter may have come while calls were being parked: look after the commit.
        unwanted = [row.id for row in rows if not row.wanted]
        await again(lambda: revive(self._database, unwanted), self._ttl)
        kept = tuple(
            Claimed(
                id=row.id, key=row.key, role=row.role, model_id=row.model_id, device=row.device, request=row.request
            )
            for row in rows
            if row.wanted
        )
        if kept or not rows:
            return Claim(token=token, calls=kept, tries=any(row.tries for row in rows)) if kept else None
        return await self._claim(statement, lock, lane, model_id, limit)

    async def _take(self, statement: TextClause, lock: TextClause, values: dict[str, Any]) -> Sequence[Row[Any]]:
        """The rows that are ours now. Where the commit's answer is lost, the token tells whether it happened."""
        rows: Sequence[Row[Any]] = ()
        try:
            async with self._database.transaction() as connection:
                await connection.execute(lock, {"class": SUSPECT_LOCK, "model": values["model"]})
                rows = (await connection.execute(statement, values)).all()
        except SQLAlchemyError as error:
            if not (rows and passing(error)):
                raise
            calls = [row.id for row in rows]
            ours = set(await again(lambda: self.renew(values["token"], calls), self._ttl))
            if not ours:
                raise
            return [row for row in rows if row.id in ours or not row.wanted]
        return rows

    async def answer(self, token: uuid.UUID, answers: Sequence[Answered]) -> Committed:
        """Commit replies, together with those that other chunks hand in meanwhile, then look whom they wake."""
        return await self._answers.do(Handed(token, answers))

    async def _store(self, together: Sequence[Handed]) -> list[Committed]:
        whole = [(each.token, reply) for each in together for reply in each.answers if not reply.is_infrastructure]
        done, refused = await self._accept_each(whole) if whole else ([], [])
        charged: list[int] = []
        for token, answers in together:
            broken = [answer for answer in answers if answer.is_infrastructure]
            broken += [answer for claimed, answer in refused if claimed == token]
            if broken:
                charged += await again(partial(self._retry, token, broken), self._ttl)
        ready = await again(lambda: look(self._database, done + charged), self._ttl) if done or charged else []
        kept = {*done, *charged}
        return [
            Committed([answer.call_id for answer in answers if answer.call_id in kept], len(ready))
            for _, answers in together
        ]

    async def _accept_each(
        self, answers: Sequence[tuple[uuid.UUID, Answered]]
    ) -> tuple[list[int], list[tuple[uuid.UUID, Answered]]]:
        """Store these; returns the calls that were ours, and a failure for each reply that cannot be stored."""
        try:
            return await self._accept(answers), []
        except Exception as error:
            if not concerns_rows(error):
                raise
            if len(answers) == 1:
                _log.exception("the reply to call %d cannot be stored", answers[0][1].call_id)
                return [], [(answers[0][0], unstorable(answers[0][1], error))]
        middle = len(answers) // 2
        first, refused = await self._accept_each(answers[:middle])
        second, others = await self._accept_each(answers[middle:])
        return first + second, refused + others

    async def _accept(self, answers: Sequence[tuple[uuid.UUID, Answered]]) -> list[int]:
        answers = sorted(answers, key=lambda pair: pair[1].call_id)
        tokens = [token for token, _ in answers]
        values = {"tokens": tokens, "worker": self._worker, **columns([answer for _, answer in answers])}
        try:
            return await self._changed(ACCEPT, values)
        except SQLAlchemyError as error:
            if not passing(error):
                raise
        # Nobody knows whether that happened: it is done again, and what either try has stored is ours.
        await again(lambda: self._changed(ACCEPT, values), self._ttl)
        stored = {"calls": values["calls"], "tokens": tokens}
        return await again(lambda: self._changed(ACCEPTED, stored), self._ttl)

    async def _retry(self, token: uuid.UUID, answers: Sequence[Answered]) -> list[int]:
        """Charge infrastructure failures; returns the calls that were charged."""
        by_call = {answer.call_id: answer for answer in answers}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(LOCK, {"calls": sorted(by_call), "token": token})).all()
            for row in rows:
                final = row.tries + 1 >= RETRIES
                await connection.execute(REJECT, self._rejection(token, by_call[row.call_id], final=final))
                if final:
                    await connection.execute(GONE, {"call": row.call_id})
                    await connection.execute(FAILED, {"call": row.call_id})
                else:
                    await connection.execute(RETRY, {"call": row.call_id, "backoff": BACKOFF_S[row.tries]})
        return [row.call_id for row in rows]

    def _rejection(self, token: uuid.UUID, answer: Answered, *, final: bool) -> dict[str, object]:
        return {
            "call": answer.call_id,
            "accepted": final,
            "token": token,
            "outcome": outcome_of(answer.reply),
            "reply": canonical.encode(answer.reply),
            "worker": self._worker,
            "device": answer.receipt.device,
            "epoch": answer.receipt.epoch,
            "started": answer.receipt.started_at,
            "ended": answer.receipt.ended_at,
        }

    async def release(self, token: uuid.UUID, calls: Sequence[int], pause_s: float = 0.2) -> None:
        """Give calls back uncharged: nothing of them was sent."""
        values = {"calls": sorted(calls), "token": token, "pause": pause_s}
        await again(lambda: self._changed(RELEASE, values), self._ttl)

    async def wait(self, token: uuid.UUID, calls: Sequence[int], model_id: int, what: str, said: str) -> None:
        """Give calls back uncharged: what their model needs is away, so all its calls wait."""

        async def note() -> None:
            async with self._database.transaction() as connection:
                await outages.note(connection, [model_id], what, said)

        await again(note, self._ttl)
        await self.release(token, calls)

    async def came_back(self, model_id: int) -> None:
        """What the model needs has answered: all its calls may be claimed."""

        async def end() -> None:
            async with self._database.transaction() as connection:
                await outages.end(connection, [model_id])

        await again(end, self._ttl)

    async def renew(self, token: uuid.UUID, calls: Sequence[int]) -> list[int]:
        """Keep a claim for another time to live; returns the calls that are still ours."""
        return await self._changed(RENEW, {"calls": sorted(calls), "token": token, "ttl": self._ttl})

    async def _changed(self, statement: TextClause, values: Mapping[str, object]) -> list[int]:
        async with self._database.statement() as connection:
            return list((await connection.execute(statement, values)).scalars())
