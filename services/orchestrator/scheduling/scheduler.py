"""The scheduler looks at the demand of each device and flips its lease."""

import logging
import time
from collections.abc import Collection, Hashable, Sequence

import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.intervals import poisson_interval
from mathrag.messages import redact
from services.orchestrator.scheduling import demands
from services.orchestrator.scheduling.demands import (
    MeasuredSeconds,
    MeasuredSecondsReader,
    ModelCalls,
    Needs,
    load_demands,
)
from services.orchestrator.scheduling.routines import Routine
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import Phase, RedisLease
from shared.lease.plan import Room, plan
from shared.lease.policy import (
    PRESSING,
    DeviceResidency,
    FlipRules,
    ModelGroup,
    ModelLoad,
    Target,
    WorkloadSnapshot,
    decide,
    group_by_footprint,
    group_singly,
    stands_idle,
)
from shared.plugins.loading import encode_usable_pins
from shared.queue import Ticker, celery_app
from shared.runtime.advance import JobSpecs, require_readable
from shared.runtime.queue import any_ready, find_complete_samples, mark_ready_among
from shared.settings import Device, Settings
from shared.storage import devices
from shared.storage.database import Database, sql
from shared.storage.jobs import LaneWork

TRUSTED_S = 5.0
"""Seconds for which a plan of the same jobs is reused: counting remaining calls reads all their samples."""

SELECT_LIVE_JOBS = sql("""
    SELECT id, total FROM jobs WHERE ended_at IS NULL AND state IN {RUNNABLE} ORDER BY id""")

_log = logging.getLogger(__name__)


class LivePlan:
    """Plans all live work on the device to which these settings are narrowed: which models it may hold at the same
    time.
    """

    def __init__(self, settings: Settings, measured_seconds: MeasuredSecondsReader) -> None:
        self._device = settings.device
        self._models = settings.models
        self._measured_seconds = measured_seconds
        self._jobs: dict[int, int] = {}
        self._groups: Sequence[ModelGroup] = ()
        self._made_at = float("-inf")

    async def groups(self, connection: AsyncConnection) -> Sequence[ModelGroup]:
        """Return the residencies of the cheapest plan that fits; empty if none fits or no plan can be made."""
        jobs = {row.id: row.total for row in await connection.execute(SELECT_LIVE_JOBS)}
        if jobs != self._jobs or time.monotonic() - self._made_at >= TRUSTED_S:
            try:
                self._groups = await self._plan(connection, jobs)
            except Exception:  # noqa: BLE001 - a pipeline may fail on made-up replies; the device must continue
                _log.exception("no plan for %s: one model at a time is resident", self._device.id)
                self._groups = ()
            self._jobs, self._made_at = jobs, time.monotonic()
        return self._groups

    async def _plan(self, connection: AsyncConnection, jobs: dict[int, int]) -> Sequence[ModelGroup]:
        specs = await JobSpecs().load_each(connection, set(jobs), set())
        needs = []
        for job, total in jobs.items():
            try:
                needs.append(await demands.estimate_live(connection, job, require_readable(specs[job]), total))
            except SQLAlchemyError:  # the snapshot is lost for every job
                raise
            except Exception as error:  # noqa: BLE001 - the others are planned without it
                _log.warning("job %d is left out of the plan: %s", job, redact(repr(error)))
        wanted = merge_needs(needs)
        measured = {self._device.id: await self._measured_seconds.read(connection)}
        demanded = await load_demands(connection, self._models, wanted.wanted, measured)
        here = [demand for demand in demanded if demand.device == self._device.id]
        # Plan for an empty device: a plan that relies on the resident models takes turns with models that fit together.
        room = Room(device=self._device.id, budget_mib=self._device.models_mib)
        return plan(here, [room], order=wanted.order).groups.get(self._device.id, ())


def merge_needs(jobs: Sequence[Needs]) -> Needs:
    """Return the sum of all jobs' demands, in the order of the job that changes its model most often."""
    wanted: dict[int, ModelCalls] = {}
    for model, each in (pair for job in jobs for pair in job.wanted.items()):
        wanted[model] = each.combine(wanted.get(model))
    longest = max((job.order for job in jobs), key=len, default=())
    rest = sorted(wanted.keys() - set(longest), key=lambda model: (list(Lane).index(wanted[model].lane), model))
    return Needs(wanted=wanted, order=(*longest, *rest))


STARVED_S = 60.0
"""Longest pause in seconds between two searches for starving jobs, which read the whole queue."""
COUNTED_S = 5.0
"""Longest time in seconds for which the counts of queued calls are reused, however long counting took."""

COUNT_LIVE_JOBS = text("""
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
      AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id OFFSET 0)""")
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
    SELECT DISTINCT j.id AS job_id, q.model_id FROM jobs j,
        LATERAL (SELECT id, position FROM samples WHERE job_id = j.id AND state = {WAITING} OFFSET 0) s,
        LATERAL (SELECT t.call_id FROM steps t WHERE {AWAITED_BY_SAMPLE} OFFSET 0) t,
        LATERAL (SELECT model_id FROM queue WHERE call_id = t.call_id OFFSET 0) q
    WHERE j.ended_at IS NULL AND j.online AND j.state IN {RUNNABLE}""")
# A job starves if it waits for models of this device and has no other work: no call of a resident model or for
# anything but this device, and no sample that can be advanced.
STARVED = sql("""
    WITH waits AS MATERIALIZED (
        SELECT DISTINCT s.job_id, q.model_id FROM queue q,
            LATERAL (SELECT sample_id, position FROM steps WHERE call_id = q.call_id OFFSET 0) t,
            LATERAL (SELECT job_id, state, position FROM samples WHERE id = t.sample_id OFFSET 0) s
        WHERE s.state = {WAITING} AND s.position = t.position + 1),
    elsewhere AS MATERIALIZED (
        SELECT w.*, m.needs_lease AND m.device = :device AND NOT m.id = ANY(:resident) AS away
        FROM waits w JOIN models m ON m.id = w.model_id)
    SELECT e.job_id, e.model_id FROM elsewhere e JOIN jobs j ON j.id = e.job_id AND j.state IN {RUNNABLE}
    WHERE e.away AND NOT EXISTS (SELECT 1 FROM elsewhere o WHERE o.job_id = e.job_id AND NOT o.away)
      AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = e.job_id AND s.state = {READY} OFFSET 0)""")
# Use the database's clock: this machine's may be wrong, and a retry must not depend on it.
AGE = text("SELECT CAST(EXTRACT(EPOCH FROM now() - CAST(:closed_at AS timestamptz)) AS float)")


class Stopwatches:
    """Measures how long conditions have lasted by the monotonic clock, because wall clocks may jump."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def keep(self, going_on: Collection[Hashable]) -> None:
        """Keep the conditions that continue, and drop the others."""
        now = time.monotonic()
        self._since = {each: self._since.get(each, now) for each in going_on}

    def find_longest(self, going_on: Collection[Hashable]) -> float | None:
        """Return the seconds of the condition that has lasted longest; None if none of them continues."""
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
        """Return the number of calls for each of `queued`, at least one; models that were never counted are counted
        now."""
        began = time.monotonic()
        if began >= self._next_at or not self._calls.keys() >= set(queued):
            rows = (await connection.execute(COUNT)).all()
            self._calls = {(row.model_id, row.lane): row.calls for row in rows}
            ended = time.monotonic()
            self._next_at = ended + min(10 * (ended - began), COUNTED_S)
        return {pair: self._calls.get(pair, 1) for pair in queued}


class Observer:
    """Observes one device's work in a snapshot of the database, and measures durations between snapshots."""

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
        """Return the work, the models on the device, and whether any job is live; `connection` is a snapshot."""
        live = (await connection.execute(COUNT_LIVE_JOBS)).one()
        measured = await self._measured_seconds.read(connection)
        residency = await self._load_residency(connection, measured)
        # Note online requests and starving jobs. A job that is alone never starves, because it has the device to
        # itself.
        rows = (await connection.execute(ONLINE)).all() if live.online else []
        self._online = [(row.job_id, row.model_id) for row in rows]
        self._asked.keep(self._online)
        bounds = [bound for bound in (self._rules.max_wait_s, self._rules.max_residency_s) if bound]
        if live.jobs < 2 or not bounds:
            self._starved = []
        elif time.monotonic() - self._starved_at >= min(STARVED_S, *(bound / 10 for bound in bounds)):
            self._starved_at = time.monotonic()
            resident = list(residency.models) if residency and residency.state == "open" else []
            rows = (await connection.execute(STARVED, {"device": self._device.id, "resident": resident})).all()
            self._starved = [(row.job_id, row.model_id) for row in rows]
        self._starving.keep({job for job, _ in self._starved})
        snapshot = await self._take_snapshot(connection, measured)
        # Add up the idle times of one residency, so that waiting for more work ends even if single calls arrive in
        # between.
        if residency is not None:
            now = time.monotonic()
            if self._idle_since is not None:
                self._idle_s += now - self._idle_since
            self._idle_since = now if stands_idle(snapshot, residency) else None
            residency = replace(residency, idle_s=self._idle_s)
        return snapshot, residency, live.jobs > 0

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
        known = {model for model, *_ in calls}
        later = [
            (row.id, row.footprint_mib, Lane.GENERATE if row.generates else Lane.JUDGE, 0)
            for row in await connection.execute(PINNED, {"device": self._device.id, "plugins": encode_usable_pins()})
            if row.id not in known
        ]
        # With only one possible model no later call can need another one, so waiting for calls is useless.
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
            loads=tuple(
                ModelLoad(
                    model_id=model,
                    footprint_mib=footprint_mib,
                    lane=lane,
                    calls=n,
                    away=model in away,
                    call_s=measured.call_s.get(model),
                    load_s=measured.load_s.get(model),
                    starved_s=self._starving.find_longest([job for job, wanted in self._starved if wanted == model]),
                    online_s=self._asked.find_longest([pair for pair in self._online if pair[1] == model]),
                )
                for model, footprint_mib, lane, n in calls
            ),
            ready=ready,
            cpu_calls=cpu_calls,
            cpu_idle_s=time.monotonic() - self._cpu_changed,
            lull_s=float("inf") if lull is None else max(0.0, float(lull)),
        )

    async def _load_residency(self, connection: AsyncConnection, measured: MeasuredSeconds) -> DeviceResidency | None:
        newest = await residencies.find_newest(connection, self._device.id)
        if newest is None:
            return None
        failures = await residencies.count_failures(connection, self._device.id)
        age = (await connection.execute(AGE, {"closed_at": newest.closed_at})).scalar_one() if newest.closed_at else 0.0
        if newest.state != "open" or newest.epoch != self._epoch:
            self._epoch = newest.epoch if newest.state == "open" else None
            self._opened, self._idle_s, self._idle_since = time.monotonic(), 0.0, None
            self._starved_at = float("-inf")  # starvation depends on the resident models
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


LOOK_S = 0.05
"""Seconds between two observations while a job is live; if an observation takes longer, as long as that."""
BUSY_LOOK_S = 0.5
"""Longest time between two observations while the resident models have calls and nothing presses: their calls have to
end before a flip."""
LONGEST_PAUSE_S = 1.0
"""Seconds to wait while no job is live. It is also the longest pause, because a slow observation may have been an
outage.
"""


class Scheduler(Routine):
    """Observes the work for one device, and decides which models it holds next.

    Several may run, because a flip is a compare-and-set.
    """

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        super().__init__()
        self._device = settings.device
        self._rules = FlipRules(
            patience_s=settings.patience_s,
            max_residency_s=self._device.max_residency_s,
            max_wait_s=self._device.max_wait_s,
            online_patience_s=self._device.online_patience_s,
        )
        measured_seconds = MeasuredSecondsReader(self._device.id)
        self.observer = Observer(self._device, self._rules, measured_seconds)
        self._live_plan = LivePlan(settings, measured_seconds)
        self._database = database
        self._lease = RedisLease(redis, self._device.id)
        self.ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)

    @property
    def device(self) -> str:
        """Return the id of the device."""
        return self._device.id

    async def run_once(self) -> float:
        """Observe the work once, and flip if it is time."""
        began = time.monotonic()
        busy_s = await self.look()
        took_s = time.monotonic() - began
        if busy_s is None:
            return LONGEST_PAUSE_S
        # Half of the time that is left, because it is an estimate.
        return min(max(LOOK_S, took_s, min(busy_s / 2, BUSY_LOOK_S)), LONGEST_PAUSE_S)

    async def look(self) -> float | None:
        """Flip if it is time; return for about how many seconds no flip can be due, and None if no job is live."""
        async with self._database.snapshot() as connection:
            snapshot, residency, live = await self.observer.observe(connection)
            if residency is not None and residency.state == "quarantined":
                residency = replace(residency, retry=await self._lease.is_retry_requested(residency.epoch))
            busy_s = estimate_busy_s(snapshot, residency) if live else None
            drained = await devices.find_drain(connection, self._device.id) is not None
            target = self._decide(snapshot, residency, drained=drained)
            if target is not None and target.models and self._device.residency == "auto":
                # Whether to flip does not depend on the plan, so the plan is made only for a flip.
                groups = await self._live_plan.groups(connection)
                target = self._decide(snapshot, residency, groups=groups)
            if target is None:
                return busy_s
            # A committed reply that was not processed yet may give the resident model more work. It has to be sought in
            # this snapshot: a later one would miss a reply that is processed in between.
            complete = [] if target.cause in PRESSING else await find_complete_samples(connection)
        if complete:
            await mark_ready_among(self._database, complete)
            await self.ticker.tick(Lane.JUDGE)
        else:
            await self._flip(residency.epoch if residency else 0, target)
        return busy_s

    def _decide(
        self,
        snapshot: WorkloadSnapshot,
        held: DeviceResidency | None,
        *,
        groups: Sequence[ModelGroup] | None = None,
        drained: bool = False,
    ) -> Target | None:
        if groups is None and self._device.residency == "together":
            groups = group_by_footprint(snapshot.loads, self._device.models_mib)
        elif groups is None:
            groups = group_singly(snapshot.loads)
        return decide(snapshot, held, groups=groups, rules=self._rules, drained=drained)

    async def _flip(self, previous: int, target: Target) -> None:
        """Request a residency; only the decision that commits first flips the lease."""
        if not await self._lease.is_reachable():
            _log.warning("no flip to %s while Redis is away", target.models)
            return
        async with self._database.transaction() as connection:
            plan = {**target.plan, "parallel": {str(model): slots for model, slots in target.parallel.items()}}
            epoch = await residencies.insert_wanted(
                connection, self._device.id, previous, target.models, target.cause, plan
            )
        if epoch is None:
            return
        _log.info("epoch %d: models %s wanted, %s", epoch, target.models, target.cause)
        try:
            await self._lease.publish(epoch, Phase.DRAINING)
        except RedisError as error:
            _log.warning("lease not flipped, the guard refuses the old epoch anyway: %s", error)


def estimate_busy_s(snapshot: WorkloadSnapshot, held: DeviceResidency | None) -> float:
    """Estimate for how many seconds the models that the device holds have calls; 0 if a request or a job presses."""
    if held is None or held.state != "open" or any(load.online_s or load.starved_s for load in snapshot.loads):
        return 0.0
    return sum(load.calls * (load.call_s or 0.0) for load in snapshot.loads if load.model_id in held.models)


FEWEST = 5
"""Number of calls that must have ended in the window before their pace predicts when the others will."""


class NextFlip(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that wait for models that the device does not hold."""

    models: list[str]
    """Models that calls wait for, the longest queue first."""
    waiting: int
    """Number of calls for these models."""
    left: int
    """Number of calls for the resident models, which are answered first and may lead to more calls."""
    low_s: float | None = None
    """Lower bound in seconds of the time until these calls are answered, by the 95 % interval of their pace in the last
    30 s; null if too few calls have ended."""
    high_s: float | None = None
    """Upper bound in seconds of the same time; null if too few calls have ended."""


def predict_next_flip(device: str, resident: Sequence[str], work: Sequence[LaneWork]) -> NextFlip | None:
    """Return the conditions of the next flip; None if no call waits for a model that `device` does not hold."""
    here = [each for each in work if each.device == device]
    waiting = [each for each in here if each.queued and each.model not in resident]
    waiting.sort(key=lambda each: -each.queued)
    if not waiting:
        return None
    ahead = [each for each in here if each.model in resident]
    left, ended = sum(each.queued for each in ahead), sum(each.ended for each in ahead)
    low_s = high_s = None
    if left and ended >= FEWEST:
        few, many = poisson_interval(ended)
        low_s, high_s = left * ahead[0].window_s / many, left * ahead[0].window_s / few
    models, calls = [each.model for each in waiting], sum(each.queued for each in waiting)
    return NextFlip(models=models, waiting=calls, left=left, low_s=low_s, high_s=high_s)
