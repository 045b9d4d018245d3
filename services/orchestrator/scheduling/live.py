"""Plans all live work: which models a device's scheduler may have resident at the same time."""

import logging
import time
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling import needs
from services.orchestrator.scheduling.demands import ModelCalls, load_demands
from services.orchestrator.scheduling.measured_seconds import MeasuredSecondsReader
from services.orchestrator.scheduling.needs import Needs
from shared.calls import Lane
from shared.errors import Unreadable
from shared.lease.plan import Plan, Room, plan
from shared.lease.policy import ModelGroup
from shared.redaction import redact
from shared.runtime.advance import Jobs, JobSpec, require_readable
from shared.settings import Settings
from shared.storage.database import sql

TRUSTED_S = 5.0
"""Seconds for which a plan of the same jobs is reused: counting what is left reads all their samples."""

LIVE = sql("""
    SELECT id, total FROM jobs WHERE ended_at IS NULL AND state IN {RUNNABLE} ORDER BY id""")

_log = logging.getLogger(__name__)


class LivePlan:
    """The plan of the device to which these settings are narrowed."""

    def __init__(self, settings: Settings, measured_seconds: MeasuredSecondsReader) -> None:
        self._device = settings.device
        self._models = settings.models
        self._measured_seconds = measured_seconds
        self._jobs: dict[int, int] = {}
        self._groups: Sequence[ModelGroup] = ()
        self._made_at = float("-inf")

    async def groups(self, connection: AsyncConnection) -> Sequence[ModelGroup]:
        """Return the residencies of the cheapest plan that fits; empty if none fits or no plan can be made."""
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
        found = [await _estimate_needs(connection, job, specs[job], total) for job, total in jobs.items()]
        wanted = merge_needs([each for each in found if each is not None])
        measured = {self._device.id: await self._measured_seconds.read(connection)}
        demanded = await load_demands(connection, self._models, wanted.wanted, measured)
        here = [demand for demand in demanded if demand.device == self._device.id]
        # Plan for an empty device: a plan that relies on what is resident takes turns with models that fit together.
        room = Room(device=self._device.id, budget_mib=self._device.models_mib)
        return plan(here, [room], order=wanted.order)


async def _estimate_needs(
    connection: AsyncConnection, row: int, spec: JobSpec | Unreadable, samples: int
) -> Needs | None:
    """Return what one job needs; None if that is unknown, and the others are planned without it."""
    try:
        return await needs.estimate_live(connection, row, require_readable(spec), samples)
    except Exception as error:
        if isinstance(error, SQLAlchemyError):  # the snapshot is lost for every job
            raise
        _log.warning("job %d is left out of the plan: %s", row, redact(repr(error)))
        return None


def merge_needs(jobs: Sequence[Needs]) -> Needs:
    """Return the sum of what all jobs need, in the order of the job that changes its model most often."""
    wanted: dict[int, ModelCalls] = {}
    for model, each in (pair for job in jobs for pair in job.wanted.items()):
        wanted[model] = each.combine(wanted.get(model))
    longest = max((job.order for job in jobs), key=len, default=())
    rest = sorted(wanted.keys() - set(longest), key=lambda model: (list(Lane).index(wanted[model].lane), model))
    return Needs(wanted=wanted, order=(*longest, *rest))
