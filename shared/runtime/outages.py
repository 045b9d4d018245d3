"""Outages of shared services: a search engine, a model server, a device that cannot be loaded.

An outage belongs to a model, never to a call. The model's calls wait in the queue without a charge, and one call at a
time probes whether the server is back. A call fails as `unavailable` after waiting for `workers.outage_s`.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.calls import Lane
from shared.contracts.replies import Failure, FailureKind
from shared.lease import residencies
from shared.lease.lease import RedisLease
from shared.redaction import redact
from shared.runtime.readiness import mark_ready_samples
from shared.storage.database import Database

LONGEST_PAUSE_S = 30.0
"""Longest pause between two probes, and the longest time that others wait for a probe to end."""
BATCH = 1000
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
GONE = text("DELETE FROM queue WHERE call_id = ANY(:calls)")
FAILED = text("UPDATE calls SET failed = true WHERE id = ANY(:calls)")


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
    failed = await _fail_overdue(database, worker, lanes, outage_s)
    async with database.transaction() as connection:
        await connection.execute(FORGET, {"lanes": lanes})
    return failed


async def _fail_overdue(database: Database, worker: str, lanes: Sequence[str], outage_s: float) -> list[int]:
    """Fail the calls that had waited for `outage_s` at the last failed probe of their server."""
    failed: list[int] = []
    while calls := await _fail_some(database, worker, lanes, outage_s):
        await mark_ready_samples(database, calls)
        failed += calls
    return failed


async def _fail_some(database: Database, worker: str, lanes: Sequence[str], outage_s: float) -> list[int]:
    async with database.transaction() as connection:
        values = {"lanes": list(lanes), "outage": outage_s, "n": BATCH}
        rows = (await connection.execute(OVERDUE, values)).all()
        if not rows:
            return []
        calls = [row.call_id for row in rows]
        attempts = {
            "calls": calls,
            "token": uuid.uuid4(),  # this transaction claims and answers them
            "outcome": FailureKind.UNAVAILABLE.value,
            "replies": [canonical.encode(_failure(row)) for row in rows],
            "worker": worker,
            "started": [row.since for row in rows],
            "ended": [row.tried_at for row in rows],
        }
        failed = list((await connection.execute(FAIL, attempts)).scalars())
        await connection.execute(GONE, {"calls": calls})
        await connection.execute(FAILED, {"calls": sorted(failed)})
    return calls


def _failure(row: Row[tuple[int, str, str, datetime, datetime]]) -> Failure:
    waited_s = (row.tried_at - row.since).total_seconds()
    since = row.since.astimezone(UTC).strftime("%H:%M:%S")
    message = f"waited {waited_s:.0f} s for {row.what}, since {since} UTC: {row.said}"
    return Failure(kind=FailureKind.UNAVAILABLE, detail=message[:500])
