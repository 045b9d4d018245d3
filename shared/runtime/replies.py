"""Commit replies under their claims: accept values, and charge and retry infrastructure failures."""

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts import canonical
from shared.contracts.replies import BOUNDS, Failure
from shared.runtime.answers import AnsweredCall, fail_unstorable, outcome_name, to_columns
from shared.runtime.readiness import mark_ready_samples
from shared.storage.database import Database
from shared.storage.outages import concerns_rows, is_passing, retry_through_outage
from shared.storage.sql import sql

RETRIES = 3
"""Number of infrastructure failures after which a call fails for good."""
BACKOFF_S = (2.0, 15.0)
"""Pause before the second and the third attempt, longer than a service takes to restart."""

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


_log = logging.getLogger(__name__)


class Committed(NamedTuple):
    """Result of committing answers."""

    calls: list[int]
    """Calls whose claim was still held."""
    ready: int
    """Samples that became ready by the whole group commit."""


class PendingAnswers(NamedTuple):
    """Answers that wait for a group commit."""

    token: uuid.UUID
    answers: Sequence[AnsweredCall]


class ReplyStore:
    """Commits the replies of one worker."""

    def __init__(self, database: Database, worker: str, ttl_s: float) -> None:
        self._database = database
        self._worker = worker
        self._ttl = ttl_s

    async def store(self, together: Sequence[PendingAnswers]) -> list[Committed]:
        """Commit these answers as a group; return their results in order."""
        whole = [(each.token, reply) for each in together for reply in each.answers if not reply.is_infrastructure]
        done, refused = await self._accept_each(whole) if whole else ([], [])
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

    async def _accept_each(
        self, answers: Sequence[tuple[uuid.UUID, AnsweredCall]]
    ) -> tuple[list[int], list[tuple[uuid.UUID, AnsweredCall]]]:
        """Store replies; return the calls still held, and a failure for each reply that cannot be stored."""
        try:
            return await self._accept(answers), []
        except Exception as error:
            if not concerns_rows(error):
                raise
            if len(answers) == 1:
                _log.exception("the reply to call %d cannot be stored", answers[0][1].call_id)
                return [], [(answers[0][0], fail_unstorable(answers[0][1], error))]
        middle = len(answers) // 2
        first, refused = await self._accept_each(answers[:middle])
        second, others = await self._accept_each(answers[middle:])
        return first + second, refused + others

    async def _accept(self, answers: Sequence[tuple[uuid.UUID, AnsweredCall]]) -> list[int]:
        answers = sorted(answers, key=lambda pair: pair[1].call_id)
        tokens = [token for token, _ in answers]
        values = {"tokens": tokens, "worker": self._worker, **to_columns([answer for _, answer in answers])}
        try:
            return await self._database.column(ACCEPT, values)
        except SQLAlchemyError as error:
            if not is_passing(error):
                raise
        # The commit's result is unknown: repeat it, and count what either attempt has stored.
        await retry_through_outage(lambda: self._database.column(ACCEPT, values), self._ttl)
        stored = {"calls": values["calls"], "tokens": tokens}
        return await retry_through_outage(lambda: self._database.column(ACCEPTED, stored), self._ttl)

    async def _retry(self, token: uuid.UUID, answers: Sequence[AnsweredCall]) -> list[int]:
        """Charge infrastructure failures; return the charged calls."""
        by_call = {answer.call_id: answer for answer in answers}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(LOCK, {"calls": sorted(by_call), "token": token})).all()
            for row in rows:
                answer = by_call[row.call_id]
                final = row.tries + 1 >= RETRIES or _exceeds_bounds(answer)
                await connection.execute(REJECT, self._rejection(token, answer, final=final))
                if final:
                    await connection.execute(GONE, {"call": row.call_id})
                    await connection.execute(FAILED, {"call": row.call_id})
                else:
                    await connection.execute(RETRY, {"call": row.call_id, "backoff": BACKOFF_S[row.tries]})
        return [row.call_id for row in rows]

    def _rejection(self, token: uuid.UUID, answer: AnsweredCall, *, final: bool) -> dict[str, object]:
        return {
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


def _exceeds_bounds(answer: AnsweredCall) -> bool:
    return isinstance(answer.reply, Failure) and answer.reply.kind in BOUNDS
