"""Derives the metrics of the whole installation at a request, and caches them for some seconds."""

import asyncio
import logging
import time

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.deps import Deps
from services.orchestrator.metrics import gauges
from services.orchestrator.metrics.flips import Flips
from services.orchestrator.metrics.metric_values import MetricValues
from services.orchestrator.metrics.requests import Requests
from services.orchestrator.metrics.row_counters import RowCounters
from services.orchestrator.metrics.vectors import Vectors

FRESH_S = 5.0
"""Seconds for which an answer is cached, so that several scrapers cost no more than one."""

_log = logging.getLogger(__name__)


class Metrics:
    """Holds the registry of this process. Its counters start with its first read, as in every process."""

    def __init__(self, fresh_s: float = FRESH_S) -> None:
        self._registry = CollectorRegistry()
        self._values = MetricValues()
        self._registry.register(self._values)
        ProcessCollector(registry=self._registry)
        self.requests = Requests(self._registry)
        self._row_counters = RowCounters(self._values)
        self._flips = Flips(self._values)
        self._vectors = Vectors(self._values)
        self._fresh_s = fresh_s
        self._looked_at = -fresh_s
        self._looking = asyncio.Lock()

    async def text(self, deps: Deps) -> bytes:
        """Return the metrics in Prometheus' text format; an unavailable database is a metric, not an error."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= self._fresh_s:
                await self._look(deps)
                self._looked_at = time.monotonic()
        return generate_latest(self._registry)

    async def _look(self, deps: Deps) -> None:
        began = time.perf_counter()
        rows = await self._read_rows(deps)
        await self._vectors.update(deps)
        gauge_rows = [*(rows or ()), *gauges.read_process(deps), *await gauges.read_services(deps)]
        gauge_rows.append(("mathrag_service_up", ["postgres"], rows is not None))
        gauge_rows.append(("mathrag_metrics_duration_seconds", [], time.perf_counter() - began))
        self._values.show(gauge_rows)

    async def _read_rows(self, deps: Deps) -> list[gauges.Gauge] | None:
        try:
            async with deps.database.transaction() as connection:
                await self._row_counters.update(connection)
                await self._flips.update(connection)
                return await gauges.read_rows(connection)
        except (SQLAlchemyError, OSError) as error:
            _log.warning("metrics without the database: %r", error)
            return None
