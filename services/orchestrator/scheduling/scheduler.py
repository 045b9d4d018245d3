"""The scheduler: looks at the work and decides flips. Several may run: a flip is a compare-and-set."""

import logging
import time
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.orchestrator.scheduling.live import LivePlan
from services.orchestrator.scheduling.measured_seconds import MeasuredSecondsReader
from services.orchestrator.scheduling.routine import Routine
from services.orchestrator.scheduling.snapshots import Observer
from shared.contracts.calls import Lane
from shared.lease import residencies
from shared.lease.lease import Phase, RedisLease
from shared.lease.policy import PRESSING, Group, Held, Picture, Rules, Target, decide, staged, together
from shared.queue import Ticker, celery_app
from shared.runtime.look import look_everywhere
from shared.settings import Settings
from shared.storage import devices
from shared.storage.database import Database

LOOK_S = 0.05
"""Pause between two looks while a job is live; where a look takes longer, as long as that."""
LONGEST_PAUSE_S = 1.0
"""Pause while no job is live, and the longest one: what a look took may have been an outage."""

_log = logging.getLogger(__name__)


def rules(settings: Settings) -> Rules:
    """How long what may wait, as the operator says."""
    device = settings.device
    return Rules(
        patience_s=settings.patience_s,
        max_residency_s=device.max_residency_s,
        max_wait_s=device.max_wait_s,
        online_patience_s=device.online_patience_s,
    )


class Scheduler(Routine):
    """The control loop of one device."""

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        super().__init__()
        self._device = settings.device
        self._rules = rules(settings)
        measured_seconds = MeasuredSecondsReader(self._device.id)
        self._observer = Observer(self._device, self._rules, measured_seconds)
        self._live_plan = LivePlan(settings, measured_seconds)
        self._database = database
        self._lease = RedisLease(redis, self._device.id)
        self._ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)

    @property
    def device(self) -> str:
        """Whose flips it decides."""
        return self._device.id

    async def once(self) -> float:
        """One look."""
        began = time.monotonic()
        live = await self._look()
        took_s = time.monotonic() - began
        return min(max(LOOK_S, took_s), LONGEST_PAUSE_S) if live else LONGEST_PAUSE_S

    async def _look(self) -> bool:
        """Flip if it is time; returns whether any job is live."""
        async with self._database.snapshot() as connection:
            picture, held, live = await self._observer.look(connection)
            drained = await devices.drain_of(connection, self._device.id) is not None
            target = self._decide(picture, held, drained=drained)
            if target is not None and target.models and self._device.residency == "auto":
                # Whether to flip does not hang on the plan, and only a flip is worth one.
                groups = await self._live_plan.groups(connection)
                target = self._decide(picture, held, groups=groups)
        if target is not None and (target.cause in PRESSING or not await self._overlooked()):
            await self._flip(held.epoch if held else 0, target)
        return live

    def _decide(
        self, picture: Picture, held: Held | None, *, groups: Sequence[Group] | None = None, drained: bool = False
    ) -> Target | None:
        if groups is None:
            fitting = self._device.residency == "together"
            groups = together(picture.loads, self._device.models_mib) if fitting else staged(picture.loads)
        return decide(picture, held, groups=groups, rules=self._rules, drained=drained)

    async def _overlooked(self) -> bool:
        """A reply that is committed but not looked at yet may still give the resident model work."""
        if not await look_everywhere(self._database):
            return False
        await self._ticker.tick(Lane.JUDGE)
        return True

    async def _flip(self, previous: int, target: Target) -> None:
        """Want a residency; only the decision that was first flips the lease."""
        if not await self._lease.reachable():
            _log.warning("no flip to %s while Redis is away", target.models)
            return
        async with self._database.transaction() as connection:
            plan = {**target.plan, "parallel": {str(model): slots for model, slots in target.parallel.items()}}
            epoch = await residencies.want(connection, self._device.id, previous, target.models, target.cause, plan)
        if epoch is None:
            return
        _log.info("epoch %d: models %s wanted, %s", epoch, target.models, target.cause)
        try:
            await self._lease.publish(epoch, Phase.DRAINING)
        except RedisError as error:
            _log.warning("lease not flipped, the guard refuses the old epoch anyway: %s", error)
