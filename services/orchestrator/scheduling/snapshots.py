"""Observes one device's work in a snapshot of the database, and measures durations between snapshots."""

import time
from collections.abc import Collection, Hashable

from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.measured_seconds import MeasuredSeconds, MeasuredSecondsReader
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.policy import DeviceResidency, FlipRules, ModelLoad, WorkloadSnapshot, stands_idle
from shared.plugins.loading import encode_usable_pins
from shared.runtime.queue import any_ready
from shared.settings import Device
from shared.storage.database import sql

STARVED_S = 60.0
"""Longest pause in seconds between two searches for starving jobs, which read the whole queue."""
COUNTED_S = 5.0
"""Longest time in seconds for which the counts of queued calls are reused, however long counting took."""

LIVE = text("""
    SELECT count(*) AS jobs, count(*) FILTER (WHERE online) AS online
    FROM jobs WHERE ended_at IS NULL AND state IN ('preparing', 'running', 'cancelling')""")
LULL = text("""
    SELECT extract(epoch FROM now() - created_at) AS seconds
    FROM (SELECT id, created_at, online FROM jobs ORDER BY id DESC LIMIT 50) newest
    WHERE NOT online ORDER BY id DESC OFFSET 1 LIMIT 1""")
# A flip depends on whether there are calls: one index entry per model and lane, however long the queue. Calls of a
# leased model whose server has been away for longer than the patience do not count until its next try is due.
WORK = text("""
    SELECT m.id AS model_id, l.lane, m.needs_lease, m.backend, m.footprint_mib, m.needs_lease AND EXISTS (
        SELECT 1 FROM outages o WHERE o.model_id = m.id AND o.next_try > now()
            AND o.since < now() - make_interval(secs => :patience)) AS away
    FROM models m CROSS JOIN unnest(CAST(:lanes AS text[])) l(lane)
    WHERE m.served AND (m.device = :device OR NOT m.needs_lease)
      AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id)""")
# The number of calls weighs models against each other, and is shown.
COUNT = text("SELECT model_id, lane, count(*) AS calls FROM queue GROUP BY model_id, lane")
# Models that live jobs will need later: if several fit, they are loaded together. A job with pins of another release
# needs nothing, because its samples fail; the observation must not fail.
PINNED = sql("""
    SELECT DISTINCT m.id, m.footprint_mib, p.key = 'generate' AS generates
    FROM jobs j CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(j.pins) WHEN 'object' THEN j.pins ELSE '{{}}' END) p
    JOIN models m ON m.needs_lease AND m.served AND m.device = :device AND m.id = CAST(
        CASE jsonb_typeof(p.value -> 'model_id') WHEN 'number' THEN p.value ->> 'model_id' END AS integer)
    WHERE j.state IN {RUNNABLE} AND {HAS_PLUGINS}""")
ONLINE = sql("""
    SELECT DISTINCT j.id AS job_id, q.model_id FROM jobs j JOIN samples s ON s.job_id = j.id AND s.state = {WAITING}
    JOIN steps t ON {AWAITED_BY_SAMPLE} JOIN queue q ON q.call_id = t.call_id
    WHERE j.ended_at IS NULL AND j.online AND j.state IN {RUNNABLE}""")
# A job starves if it waits for models of this device and has no other work: no call of a resident model or for
# anything but this device, and no sample that can be advanced.
STARVED = sql("""
    WITH waits AS MATERIALIZED (
        SELECT DISTINCT s.job_id, q.model_id FROM queue q JOIN steps t ON t.call_id = q.call_id
        JOIN samples s ON {WAITS_FOR_STEP}),
    elsewhere AS MATERIALIZED (
        SELECT w.*, m.needs_lease AND m.device = :device AND NOT m.id = ANY(:resident) AS away
        FROM waits w JOIN models m ON m.id = w.model_id)
    SELECT e.job_id, e.model_id FROM elsewhere e JOIN jobs j ON j.id = e.job_id AND j.state IN {RUNNABLE}
    WHERE e.away AND NOT EXISTS (SELECT 1 FROM elsewhere o WHERE o.job_id = e.job_id AND NOT o.away)
      AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = e.job_id AND s.state = {READY})""")
# Use the database's clock: this machine's may be wrong, and a retry must not depend on it.
AGE = text("SELECT CAST(EXTRACT(EPOCH FROM now() - CAST(:closed_at AS timestamptz)) AS float)")


class Stopwatches:
    """Measures how long conditions have lasted by the monotonic clock, because wall clocks may jump."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def keep(self, going_on: Collection[Hashable]) -> None:
        """Keep the conditions that go on, and drop the others."""
        now = time.monotonic()
        self._since = {each: self._since.get(each, now) for each in going_on}

    def find_longest(self, going_on: Collection[Hashable]) -> float | None:
        """Return the seconds of the condition that has lasted longest; None if none of them goes on."""
        since = [self._since[each] for each in going_on if each in self._since]
        return time.monotonic() - min(since) if since else None


Queued = tuple[int, str]
"""Model and lane of queued calls."""


class QueueCounts:
    """Counts the queued calls by model and lane; counting takes a tenth of the time at most."""

    def __init__(self) -> None:
        self._calls: dict[Queued, int] = {}
        self._next_at = float("-inf")

    async def read(self, connection: AsyncConnection, queued: Collection[Queued]) -> dict[Queued, int]:
        """Return the number of calls for each of `queued`, at least one; what was never counted is counted now."""
        began = time.monotonic()
        if began >= self._next_at or not self._calls.keys() >= set(queued):
            rows = (await connection.execute(COUNT)).all()
            self._calls = {(row.model_id, row.lane): row.calls for row in rows}
            ended = time.monotonic()
            self._next_at = ended + min(10 * (ended - began), COUNTED_S)
        return {pair: self._calls.get(pair, 1) for pair in queued}


class Observer:
    """Observes one device and its work."""

    def __init__(self, device: Device, rules: FlipRules, measured_seconds: MeasuredSecondsReader) -> None:
        self._device = device
        self._rules = rules
        self._measured_seconds = measured_seconds
        self._counts = QueueCounts()
        self._cpu_calls = 0
        self._cpu_changed = time.monotonic()
        self._epoch: int | None = None
        """The open one."""
        self._opened = 0.0
        self._idle_s = 0.0
        self._idle_since: float | None = None
        self._asked, self._starving = Stopwatches(), Stopwatches()
        self._online: list[tuple[int, int]] = []
        self._starved: list[tuple[int, int]] = []
        """(job, model)."""
        self._starved_at = float("-inf")

    async def observe(self, connection: AsyncConnection) -> tuple[WorkloadSnapshot, DeviceResidency | None, bool]:
        """Return the work, what the device holds, and whether any job is live; `connection` is a snapshot."""
        live = (await connection.execute(LIVE)).one()
        measured = await self._measured_seconds.read(connection)
        residency = await self._load_residency(connection, measured)
        await self._note_waiting(connection, live.jobs, live.online, residency)
        picture = await self._take_snapshot(connection, measured)
        return picture, self._add_idle_time(picture, residency), live.jobs > 0

    async def _take_snapshot(self, connection: AsyncConnection, measured: MeasuredSeconds) -> WorkloadSnapshot:
        values = {"device": self._device.id, "lanes": list(Lane), "patience": self._rules.patience_s}
        rows = (await connection.execute(WORK, values)).all()
        away = {row.model_id for row in rows if row.away}
        counts = await self._counts.read(connection, [(row.model_id, row.lane) for row in rows])
        calls = [
            (row.model_id, row.footprint_mib, Lane(row.lane), 0 if row.away else counts[row.model_id, row.lane])
            for row in rows
            if row.needs_lease
        ]
        later = await self._load_later_models(connection, {model for model, *_ in calls})
        # With only one possible model no later call can need another one, so there is no reason to wait for calls.
        ready, cpu_calls = False, 0
        if len({model for model, *_ in (*calls, *later)}) > 1:
            ready = await any_ready(connection)
            open_ones = [row for row in rows if not row.needs_lease and row.backend not in ("grader", "miner")]
            cpu_calls = sum(counts[row.model_id, row.lane] for row in open_ones)
        if cpu_calls != self._cpu_calls:
            self._cpu_calls, self._cpu_changed = cpu_calls, time.monotonic()
        if self._device.residency != "staged":
            calls += later
        lull = (await connection.execute(LULL)).scalar()
        return WorkloadSnapshot(
            loads=tuple(self._load(*each, measured, away=each[0] in away) for each in calls),
            ready=ready,
            cpu_calls=cpu_calls,
            cpu_idle_s=time.monotonic() - self._cpu_changed,
            lull_s=float("inf") if lull is None else max(0.0, float(lull)),
        )

    def _load(
        self, model: int, footprint_mib: int, lane: Lane, calls: int, measured: MeasuredSeconds, *, away: bool
    ) -> ModelLoad:
        return ModelLoad(
            model_id=model,
            footprint_mib=footprint_mib,
            lane=lane,
            calls=calls,
            away=away,
            call_s=measured.call_s.get(model),
            load_s=measured.load_s.get(model),
            starved_s=self._starving.find_longest([job for job, wanted in self._starved if wanted == model]),
            online_s=self._asked.find_longest([pair for pair in self._online if pair[1] == model]),
        )

    async def _load_later_models(
        self, connection: AsyncConnection, known: set[int]
    ) -> list[tuple[int, int, Lane, int]]:
        """Return models that live jobs are pinned to and that have no calls yet."""
        return [
            (row.id, row.footprint_mib, Lane.GENERATE if row.generates else Lane.JUDGE, 0)
            for row in await connection.execute(PINNED, {"device": self._device.id, "plugins": encode_usable_pins()})
            if row.id not in known
        ]

    async def _note_waiting(
        self, connection: AsyncConnection, jobs: int, online: int, held: DeviceResidency | None
    ) -> None:
        """Note online requests and starving jobs. A job that is alone never starves, because it has the device to
        itself.
        """
        rows = (await connection.execute(ONLINE)).all() if online else []
        self._online = [(row.job_id, row.model_id) for row in rows]
        self._asked.keep(self._online)
        bounds = [bound for bound in (self._rules.max_wait_s, self._rules.max_residency_s) if bound]
        if jobs < 2 or not bounds:
            self._starved = []
        elif time.monotonic() - self._starved_at >= min(STARVED_S, *(bound / 10 for bound in bounds)):
            self._starved_at = time.monotonic()
            resident = list(held.models) if held and held.state == "open" else []
            rows = (await connection.execute(STARVED, {"device": self._device.id, "resident": resident})).all()
            self._starved = [(row.job_id, row.model_id) for row in rows]
        self._starving.keep({job for job, _ in self._starved})

    async def _load_residency(self, connection: AsyncConnection, measured: MeasuredSeconds) -> DeviceResidency | None:
        newest = await residencies.find_newest(connection, self._device.id)
        if newest is None:
            return None
        failures = await residencies.count_failures(connection, self._device.id)
        age = (await connection.execute(AGE, {"closed_at": newest.closed_at})).scalar_one() if newest.closed_at else 0.0
        if newest.state != "open" or newest.epoch != self._epoch:
            self._epoch = newest.epoch if newest.state == "open" else None
            self._opened, self._idle_s, self._idle_since = time.monotonic(), 0.0, None
            self._starved_at = float("-inf")  # who starves depends on what is resident
        return DeviceResidency(
            epoch=newest.epoch,
            models=newest.models,
            state=newest.state,
            reason=newest.reason,
            failures=failures,
            age_s=age,
            open_s=time.monotonic() - self._opened,
            load_s=measured.flip_s(newest.models),
        )

    def _add_idle_time(self, picture: WorkloadSnapshot, held: DeviceResidency | None) -> DeviceResidency | None:
        """Add up the idle times of one residency, so that waiting for more work ends even if single calls arrive in
        between.
        """
        if held is None:
            return None
        now = time.monotonic()
        if self._idle_since is not None:
            self._idle_s += now - self._idle_since
        self._idle_since = now if stands_idle(picture, held) else None
        return replace(held, idle_s=self._idle_s)
