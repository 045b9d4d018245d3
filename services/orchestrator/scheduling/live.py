"""The plan of everything that is live: which models a device's scheduler may have resident at once."""

import logging
import time
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling import needs
from services.orchestrator.scheduling.demands import Wanted, demands
from services.orchestrator.scheduling.measured_seconds import MeasuredSecondsReader
from services.orchestrator.scheduling.needs import Needs
from shared.contracts.calls import Lane
from shared.errors import Unreadable
from shared.lease.demand import Room
from shared.lease.plan import Plan, plan
from shared.lease.policy import Group
from shared.redaction import redacted
from shared.runtime.jobs import Jobs, JobSpec, readable
from shared.settings import Settings
from shared.storage.sql import sql

TRUSTED_S = 5.0
"""So long a plan of the same jobs is used again: what they still have to do is counted from all their samples."""

LIVE = sql("""
    SELECT id, total FROM jobs WHERE ended_at IS NULL AND state IN {RUNNABLE} ORDER BY id""")

_log = logging.getLogger(__name__)


class LivePlan:
    """Of one device, whose settings these are."""

    def __init__(self, settings: Settings, measured_seconds: MeasuredSecondsReader) -> None:
        self._device = settings.device
        self._models = settings.models
        self._measured_seconds = measured_seconds
        self._jobs: dict[int, int] = {}
        self._groups: Sequence[Group] = ()
        self._made_at = float("-inf")

    async def groups(self, connection: AsyncConnection) -> Sequence[Group]:
        """The residencies of the cheapest way that fits; none where nothing does, or no plan can be made."""
        jobs = {row.id: row.total for row in await connection.execute(LIVE)}
        if jobs != self._jobs or time.monotonic() - self._made_at >= TRUSTED_S:
            try:
                self._groups = (await self._plan(connection, jobs)).groups.get(self._device.id, ())
            except Exception:  # noqa: BLE001 - a pipeline may fail on made-up replies; the device must go on
                _log.exception("no plan for %s: one model at a time is resident", self._device.id)
                self._groups = ()
            self._jobs, self._made_at = jobs, time.monotonic()
        return self._groups

    async def _plan(self, connection: AsyncConnection, jobs: dict[int, int]) -> Plan:
        specs = await Jobs().load_each(connection, set(jobs), set())
        found = [await _needs(connection, job, specs[job], total) for job, total in jobs.items()]
        wanted = merged([each for each in found if each is not None])
        measured = {self._device.id: await self._measured_seconds.read(connection)}
        demanded = await demands(connection, self._models, wanted.wanted, measured)
        here = [demand for demand in demanded if demand.device == self._device.id]
        # As if the device were empty: a plan that counts on what happens to be there stages what fits together.
        room = Room(device=self._device.id, budget_mib=self._device.models_mib)
        return plan(here, [room], order=wanted.order)


async def _needs(connection: AsyncConnection, row: int, spec: JobSpec | Unreadable, samples: int) -> Needs | None:
    """What one job wants; None where that cannot be told: the others are planned without it."""
    try:
        return await needs.of_live(connection, row, readable(spec), samples)
    except Exception as error:
        if isinstance(error, SQLAlchemyError):  # the snapshot is lost for every job
            raise
        _log.warning("job %d is left out of the plan: %s", row, redacted(repr(error)))
        return None


def merged(jobs: Sequence[Needs]) -> Needs:
    """What all of them want, in the order of the one that changes its model most."""
    wanted: dict[int, Wanted] = {}
    for model, each in (pair for job in jobs for pair in job.wanted.items()):
        wanted[model] = each.beside(wanted.get(model))
    longest = max((job.order for job in jobs), key=len, default=())
    rest = sorted(wanted.keys() - set(longest), key=lambda model: (list(Lane).index(wanted[model].lane), model))
    return Needs(wanted=wanted, order=(*longest, *rest))
