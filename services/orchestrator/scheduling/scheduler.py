"""The scheduler observes the work and decides flips. Several may run, because a flip is a compare-and-set."""

import logging
import time
from collections.abc import Sequence

from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.orchestrator.scheduling.live import LivePlan
from services.orchestrator.scheduling.measured_seconds import MeasuredSecondsReader
from services.orchestrator.scheduling.routine import Routine
from services.orchestrator.scheduling.snapshots import Observer
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import Phase, RedisLease
from shared.lease.policy import (
    PRESSING,
    DeviceResidency,
    FlipRules,
    ModelGroup,
    Target,
    WorkloadSnapshot,
    decide,
    group_by_footprint,
    group_singly,
)
from shared.queue import Ticker, celery_app
from shared.runtime.queue import find_complete_samples, mark_ready_among
from shared.settings import Settings
from shared.storage import devices
from shared.storage.database import Database

LOOK_S = 0.05
"""Seconds between two observations while a job is live; if an observation takes longer, as long as that."""
LONGEST_PAUSE_S = 1.0
"""Seconds to wait while no job is live. It is also the longest pause, because a slow observation may have been an
outage.
"""

_log = logging.getLogger(__name__)


def make_flip_rules(settings: Settings) -> FlipRules:
    """Return the operator's limits on waiting."""
    device = settings.device
    return FlipRules(
        patience_s=settings.patience_s,
        max_residency_s=device.max_residency_s,
        max_wait_s=device.max_wait_s,
        online_patience_s=device.online_patience_s,
    )


class Scheduler(Routine):
    """Observes the work for one device, and decides which models it holds next."""

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        super().__init__()
        self._device = settings.device
        self._rules = make_flip_rules(settings)
        measured_seconds = MeasuredSecondsReader(self._device.id)
        self._observer = Observer(self._device, self._rules, measured_seconds)
        self._live_plan = LivePlan(settings, measured_seconds)
        self._database = database
        self._lease = RedisLease(redis, self._device.id)
        self._ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)

    @property
    def device(self) -> str:
        """Return the id of the device."""
        return self._device.id

    async def run_once(self) -> float:
        """Observe the work once, and flip if it is time."""
        began = time.monotonic()
        live = await self._look()
        took_s = time.monotonic() - began
        return min(max(LOOK_S, took_s), LONGEST_PAUSE_S) if live else LONGEST_PAUSE_S

    async def _look(self) -> bool:
        """Flip if it is time, and return whether any job is live."""
        async with self._database.snapshot() as connection:
            picture, residency, live = await self._observer.observe(connection)
            if residency is not None and residency.state == "quarantined":
                residency = replace(residency, retry=await self._lease.is_retry_requested(residency.epoch))
            drained = await devices.find_drain(connection, self._device.id) is not None
            target = self._decide(picture, residency, drained=drained)
            if target is not None and target.models and self._device.residency == "auto":
                # Whether to flip does not depend on the plan, so the plan is made only for a flip.
                groups = await self._live_plan.groups(connection)
                target = self._decide(picture, residency, groups=groups)
            if target is None:
                return live
            # A committed reply that was not processed yet may give the resident model more work. It has to be sought in
            # this snapshot: a later one would miss a reply that is processed in between.
            complete = [] if target.cause in PRESSING else await find_complete_samples(connection)
        if complete:
            await mark_ready_among(self._database, complete)
            await self._ticker.tick(Lane.JUDGE)
        else:
            await self._flip(residency.epoch if residency else 0, target)
        return live

    def _decide(
        self,
        picture: WorkloadSnapshot,
        held: DeviceResidency | None,
        *,
        groups: Sequence[ModelGroup] | None = None,
        drained: bool = False,
    ) -> Target | None:
        if groups is None:
            fitting = self._device.residency == "together"
            groups = (
                group_by_footprint(picture.loads, self._device.models_mib) if fitting else group_singly(picture.loads)
            )
        return decide(picture, held, groups=groups, rules=self._rules, drained=drained)

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
