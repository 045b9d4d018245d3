"""Lapse claims whose worker is gone: the call becomes a suspect, and after the third lapse poison."""

import uuid
from collections.abc import Sequence

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.replies import Failure, FailureKind
from shared.runtime.claims import LAPSES, LONGEST_S
from shared.runtime.readiness import mark_ready_samples
from shared.storage.database import Database
from shared.storage.sql import sql

# SKIP LOCKED: a transaction that holds the row is answering the call.
EXPIRED = text(f"""
    SELECT call_id, lapses, token FROM queue
    WHERE token IS NOT NULL AND (claim_until < now() OR claim_until > now() + make_interval(secs => {LONGEST_S}))
    ORDER BY call_id LIMIT 1000 FOR UPDATE SKIP LOCKED""")  # noqa: S608 - a constant
# A revival that raced with the reply can leave a queue row of an answered call: drop it without a charge.
DROP_ANSWERED = sql("""
    DELETE FROM queue q WHERE q.call_id = ANY(:calls)
        AND EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} q.call_id) RETURNING q.call_id""")
HELD = text("""
    SELECT call_id, lapses, token FROM queue WHERE call_id = ANY(:calls) AND token = :token
    ORDER BY call_id FOR UPDATE""")
CHARGE = text("""
    UPDATE queue SET token = NULL, claim_until = NULL, lapses = lapses + 1 WHERE call_id = ANY(:calls)""")
GONE = text("DELETE FROM queue WHERE call_id = ANY(:calls)")
RECORD = text("""
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker)
    SELECT u.call_id, u.accepted, u.token, u.outcome, u.reply, :worker
    FROM unnest(CAST(:calls AS bigint[]), CAST(:accepted AS boolean[]), CAST(:tokens AS uuid[]),
                CAST(:outcomes AS text[]), CAST(:replies AS bytea[])) u(call_id, accepted, token, outcome, reply)""")


async def lapse_expired(database: Database, worker: str) -> list[int]:
    """Charge every claim past its deadline (by the database's clock); return the calls that became poison."""
    async with database.transaction() as connection:
        rows = (await connection.execute(EXPIRED)).all()
        poisoned = await _charge(connection, rows, worker) if rows else []
    if poisoned:
        await mark_ready_samples(database, poisoned)
    return poisoned


async def lapse(database: Database, worker: str, token: uuid.UUID, calls: Sequence[int]) -> list[int]:
    """Charge calls whose model server or guard died while they ran; return those that became poison."""
    async with database.transaction() as connection:
        rows = (await connection.execute(HELD, {"calls": sorted(calls), "token": token})).all()
        poisoned = await _charge(connection, rows, worker) if rows else []
    if poisoned:
        await mark_ready_samples(database, poisoned)
    return poisoned


async def _charge(
    connection: AsyncConnection, locked: Sequence[Row[tuple[int, int, uuid.UUID]]], worker: str
) -> list[int]:
    answered = set((await connection.execute(DROP_ANSWERED, {"calls": [row.call_id for row in locked]})).scalars())
    rows = [row for row in locked if row.call_id not in answered]
    poisoned = [row.call_id for row in rows if row.lapses + 1 >= LAPSES]
    await connection.execute(
        RECORD,
        {
            "calls": [row.call_id for row in rows],
            "accepted": [row.call_id in poisoned for row in rows],
            "tokens": [row.token for row in rows],
            "outcomes": [FailureKind.POISONED if row.call_id in poisoned else "lapsed" for row in rows],
            "replies": [_lapse_reply(row.lapses + 1) for row in rows],
            "worker": worker,
        },
    )
    await connection.execute(CHARGE, {"calls": [row.call_id for row in rows if row.call_id not in poisoned]})
    await connection.execute(GONE, {"calls": poisoned})
    return poisoned


def _lapse_reply(lapses: int) -> bytes:
    """Encode the failure of an attempt after `lapses` lapsed claims of its call."""
    claims = f"{lapses} claim{'s' if lapses > 1 else ''} of this call lapsed"
    left = "" if lapses >= LAPSES else f"; after {LAPSES} it fails as {FailureKind.POISONED}"
    return canonical.encode(Failure(kind=FailureKind.POISONED, detail=claims + left))
