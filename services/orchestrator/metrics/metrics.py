"""The metrics of the whole installation, derived when somebody asks and kept for some seconds."""

import asyncio
import logging
import time

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.deps import Deps
from services.orchestrator.metrics import gauges
from services.orchestrator.metrics.counted import Counted
from services.orchestrator.metrics.flips import Flips
from services.orchestrator.metrics.reading import Reading
from services.orchestrator.metrics.requests import Requests
from services.orchestrator.metrics.vectors import Vectors

FRESH_S = 5.0
"""Whoever asks again within this time gets the same: several scrapers cost no more than one."""

_log = logging.getLogger(__name__)


class Metrics:
    """One process's registry. What it counts begins with the first look, as every counter of a process does."""

    def __init__(self, fresh_s: float = FRESH_S) -> None:
        self._registry = CollectorRegistry()
        self._reading = Reading()
        self._registry.register(self._reading)
        ProcessCollector(registry=self._registry)
        self.requests = Requests(self._registry)
        self._counted = Counted(self._reading)
        self._flips = Flips(self._reading)
        self._vectors = Vectors(self._reading)
        self._fresh_s = fresh_s
        self._looked_at = -fresh_s
        self._looking = asyncio.Lock()

    async def text(self, deps: Deps) -> bytes:
        """Prometheus' text format; a database that is away is a metric, not an error."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= self._fresh_s:
                await self._look(deps)
                self._looked_at = time.monotonic()
        return generate_latest(self._registry)

    async def _look(self, deps: Deps) -> None:
        began = time.perf_counter()
        rows = await self._rows(deps)
        await self._vectors.look(deps)
        shown = [*(rows or ()), *gauges.process(deps), *await gauges.services(deps)]
        shown.append(("mathrag_service_up", ["postgres"], rows is not None))
        shown.append(("mathrag_metrics_duration_seconds", [], time.perf_counter() - began))
        self._reading.show(shown)

    async def _rows(self, deps: Deps) -> list[gauges.Gauge] | None:
        try:
            async with deps.database.transaction() as connection:
                await self._counted.look(connection)
                await self._flips.look(connection)
                return await gauges.rows(connection)
        except (SQLAlchemyError, OSError) as error:
            _log.warning("metrics without the database: %r", error)
            return None
