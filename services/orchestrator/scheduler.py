"""The scheduler: looks at the work, decides flips, and sweeps up what crashes left.

Several may run: a flip is a compare-and-set, every sweep is idempotent.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime

from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.lease import residencies
from shared.lease.lease import Phase, RedisLease
from shared.lease.policy import Held, Load, Picture, Target, decide
from shared.queue import Ticker, celery_app
from shared.runtime.look import look_everywhere
from shared.runtime.sweeper import READY, sweep
from shared.settings import Settings
from shared.storage import devices
from shared.storage.database import Database

LOOK_S = 0.05
"""Pause between two looks while a job is live; longer where a look takes long."""

WORK = text("""
    SELECT q.model_id, q.lane, m.needs_lease, m.backend, m.footprint_mib, q.calls
    FROM (SELECT model_id, lane, count(*) AS calls FROM queue GROUP BY model_id, lane) q
    JOIN models m ON m.id = q.model_id AND m.served""")
# What live jobs will ask for later: where several models fit, they are loaded at once.
PINNED = text("""
    SELECT DISTINCT m.id, m.footprint_mib, p.key = 'generate' AS generates
    FROM jobs j CROSS JOIN LATERAL jsonb_each(j.pins) p
    JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer) AND m.needs_lease AND m.served
    WHERE j.state IN ('preparing', 'running')""")
LIVE = text("SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('preparing', 'running', 'cancelling'))")
FAILURES = text("""
    SELECT count(*) FROM residencies WHERE device = :device AND state = 'quarantined' AND epoch > COALESCE(
        (SELECT max(epoch) FROM residencies WHERE device = :device AND opened_at IS NOT NULL), 0)""")

_log = logging.getLogger(__name__)


class Scheduler:
    """The control loop of one device."""

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        self._settings = settings
        self._database = database
        self._lease = RedisLease(redis, settings.device.id)
        self._ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)
        self._woken = asyncio.Event()
        self._cpu_calls = 0
        self._cpu_changed = time.monotonic()

    def wake(self) -> None:
        """Look now: a job came or went."""
        self._woken.set()

    async def run(self) -> None:
        """Look and sweep until cancelled; an outage of a server is waited for."""
        swept = -self._settings.sweep_s
        while True:
            try:
                woken = self._woken.is_set()
                self._woken.clear()
                began = time.monotonic()
                live = await self._look()
                # Counting a long queue costs: it may take a tenth of the time at most.
                pause = max(LOOK_S, 10 * (time.monotonic() - began))
                if woken or time.monotonic() - swept >= self._settings.sweep_s:
                    swept = time.monotonic()
                    await self.sweep()
            except Exception:  # noqa: BLE001 - the loop must outlive every outage
                _log.exception("a look failed; trying again")
                live, pause = True, 1.0
            await self._pause(pause if live else self._settings.sweep_s)

    async def sweep(self) -> None:
        """Repair and tick every lane that has work."""
        for lane in await sweep(self._database, "sweeper"):
            await self._ticker.tick(lane)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return

    async def _look(self) -> bool:
        """Flip if it is time; returns whether any job is live."""
        async with self._database.snapshot() as connection:
            live = bool((await connection.execute(LIVE)).scalar())
            picture = await self._picture(connection)
            held = await self._held(connection)
            drained = await devices.drain_of(connection, self._settings.device.id) is not None
        target = self._decide(picture, held, drained=drained)
        if target is not None and not await self._overlooked():
            await self._flip(held.epoch if held else 0, target)
        return live

    def _decide(self, picture: Picture, held: Held | None, *, drained: bool) -> Target | None:
        device = self._settings.device
        return decide(
            picture,
            held,
            together=device.residency == "together",
            budget_mib=device.budget_mib,
            patience_s=self._settings.patience_s,
            drained=drained,
        )

    async def _overlooked(self) -> bool:
        """A reply that is committed but not looked at yet may still give the resident model work."""
        if not await look_everywhere(self._database):
            return False
        await self._ticker.tick(Lane.JUDGE)
        return True

    async def _picture(self, connection: AsyncConnection) -> Picture:
        rows = (await connection.execute(WORK)).all()
        ready = bool((await connection.execute(READY)).scalar())
        cpu_calls = sum(row.calls for row in rows if not row.needs_lease and row.backend != "grader")
        if cpu_calls != self._cpu_calls:
            self._cpu_calls, self._cpu_changed = cpu_calls, time.monotonic()
        loads = [
            Load(model_id=row.model_id, footprint_mib=row.footprint_mib, lane=Lane(row.lane), calls=row.calls)
            for row in rows
            if row.needs_lease
        ]
        if self._settings.device.residency == "together":
            loads += await self._later(connection, {load.model_id for load in loads})
        idle = time.monotonic() - self._cpu_changed
        return Picture(loads=tuple(loads), ready=ready, cpu_calls=cpu_calls, cpu_idle_s=idle)

    async def _later(self, connection: AsyncConnection, known: set[int]) -> list[Load]:
        """Models that live jobs are pinned to and that have no calls yet."""
        return [
            Load(
                model_id=row.id,
                footprint_mib=row.footprint_mib,
                lane=Lane.GENERATE if row.generates else Lane.JUDGE,
                calls=0,
            )
            for row in await connection.execute(PINNED)
            if row.id not in known
        ]

    async def _held(self, connection: AsyncConnection) -> Held | None:
        device = self._settings.device.id
        newest = await residencies.newest(connection, device)
        if newest is None:
            return None
        failures = (await connection.execute(FAILURES, {"device": device})).scalar_one()
        age = (datetime.now(UTC) - newest.closed_at).total_seconds() if newest.closed_at else 0.0
        return Held(
            epoch=newest.epoch,
            models=newest.models,
            state=newest.state,
            reason=newest.reason,
            failures=failures,
            age_s=age,
        )

    async def _flip(self, previous: int, target: Target) -> None:
        """Want a residency; only the decision that was first flips the lease."""
        if not await self._lease.reachable():
            _log.warning("no flip to %s while Redis is away", target.models)
            return
        device = self._settings.device.id
        async with self._database.transaction() as connection:
            plan = {**target.plan, "parallel": {str(model): slots for model, slots in target.parallel.items()}}
            epoch = await residencies.want(connection, device, previous, target.models, target.cause, plan)
        if epoch is None:
            return
        _log.info("epoch %d: models %s wanted, %s", epoch, target.models, target.cause)
        try:
            await self._lease.publish(epoch, Phase.DRAINING)
        except RedisError as error:
            _log.warning("lease not flipped, the guard refuses the old epoch anyway: %s", error)
