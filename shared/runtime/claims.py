"""Claim, answer and release calls: the worker's side of the queue.

A claim is a token on a queue row. Every change of the row requires the token, so a worker that was frozen while its
claim lapsed changes nothing when it resumes. Queue rows are always locked in call order.
"""

import logging
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.calls import Lane
from shared.runtime import outages
from shared.runtime.answers import AnsweredCall
from shared.runtime.group_commit import GroupCommit
from shared.runtime.outages import LONGEST_PAUSE_S
from shared.runtime.parking import WANTED
from shared.runtime.readiness import revive_calls
from shared.runtime.replies import Committed, PendingAnswers, ReplyStore
from shared.storage.database import Database
from shared.storage.outages import is_passing, retry_through_outage

LAPSES = 3
"""Number of lapsed claims after which a call counts as poison."""
LONGEST_S = 600
"""Longest life of a claim in seconds, longer than any pause. A later deadline was written before the database's clock
was set back, so it is ignored."""

SUSPECT_LOCK = 7331
"""Advisory lock class: ordinary claims of a model share it, a suspect's claim holds it exclusively."""

SHARE = text("SELECT pg_advisory_xact_lock_shared(:class, :model)")
EXCLUDE = text("SELECT pg_advisory_xact_lock(:class, :model)")
# During an outage of the model's server, one claimed call probes for all others, which wait for the result.
# Picked rows that no live sample waits for leave the queue instead of being claimed.
TAKE = f"""
    , seen AS MATERIALIZED (SELECT u.*, {WANTED} AS wanted FROM picked u),
    claimed AS (
        UPDATE queue q SET token = :token, claim_until = now() + make_interval(secs => :ttl) FROM seen p
        WHERE q.lane = p.lane AND q.model_id = p.model_id AND q.place = p.place AND q.seq = p.seq AND p.wanted),
    parked AS (
        DELETE FROM queue q USING seen p
        WHERE q.lane = p.lane AND q.model_id = p.model_id AND q.place = p.place AND q.seq = p.seq AND NOT p.wanted),
    trying AS (
        UPDATE outages SET next_try = now() + make_interval(secs => {LONGEST_PAUSE_S})
        WHERE model_id = :model AND EXISTS (SELECT 1 FROM seen p WHERE p.wanted) RETURNING model_id)
    SELECT c.id, c.key, c.role, c.model_id, m.device, c.request, p.wanted, EXISTS (SELECT 1 FROM trying) AS tries
    FROM seen p JOIN calls c ON c.id = p.id JOIN models m ON m.id = c.model_id ORDER BY c.id"""  # noqa: S608 - constants
PICK = f"""
    SELECT q.lane, q.model_id, q.place, q.seq, q.call_id AS id FROM queue q
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


class Claims:
    """The queue as one worker uses it."""

    def __init__(self, database: Database, worker: str, ttl_s: float) -> None:
        self._database = database
        self._worker = worker
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
        token = uuid.uuid4()
        values = {"lane": lane.value, "model": model_id, "token": token, "ttl": self._ttl}
        values |= {"n": limit} if statement is CLAIM else {}
        rows = await self._take(statement, lock, values)
        # A sample may have started to wait for a call while it was being parked, so check after the commit.
        unwanted = [row.id for row in rows if not row.wanted]
        await retry_through_outage(lambda: revive_calls(self._database, unwanted), self._ttl)
        kept = tuple(
            ClaimedCall(
                id=row.id, key=row.key, role=row.role, model_id=row.model_id, device=row.device, request=row.request
            )
            for row in rows
            if row.wanted
        )
        if kept or not rows:
            return Claim(token=token, calls=kept, tries=any(row.tries for row in rows)) if kept else None
        return await self._claim(statement, lock, lane, model_id, limit)

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
        """Record an outage of what the model needs and release the calls without charging them."""

        async def note() -> None:
            async with self._database.transaction() as connection:
                await outages.note_outage(connection, [model_id], what, said)

        await retry_through_outage(note, self._ttl)
        await self.release(token, calls)

    async def end_outage(self, model_id: int) -> None:
        """Record that the model's outage is over, so that all its calls may be claimed."""

        async def end() -> None:
            async with self._database.transaction() as connection:
                await outages.end_outages(connection, [model_id])

        await retry_through_outage(end, self._ttl)

    async def renew(self, token: uuid.UUID, calls: Sequence[int]) -> list[int]:
        """Extend a claim by its time to live; return the calls that this worker still holds."""
        return await self._database.column(RENEW, {"calls": sorted(calls), "token": token, "ttl": self._ttl})
