"""Warm next: while one residency works, the model that will follow is read into the page cache.

A flip then costs what memory costs, not what the disk does. At most once a residency, and never in a flip's way.
"""

import asyncio
import logging
from collections.abc import Mapping

from sqlalchemy import text

from services.guard.drivers.ports import Driver
from services.guard.guard import Guard
from shared.storage.database import Database

LOOK_S = 2.0
"""Between two looks at the queue, as long as nothing else has calls in it."""

# The policy's order: the judge's models first. One index entry a model and lane, however long the queue.
NEXT = text("""
    SELECT m.name FROM models m CROSS JOIN unnest(ARRAY['judge', 'generate']) WITH ORDINALITY l(lane, place)
    WHERE m.served AND m.needs_lease AND m.device = :device AND NOT m.id = ANY(:resident)
      AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id)
    ORDER BY l.place, m.id LIMIT 1""")

_log = logging.getLogger(__name__)


class Warming:
    """What is read ahead for one device."""

    def __init__(self, database: Database, guard: Guard, drivers: Mapping[str, Driver]) -> None:
        self._database = database
        self._guard = guard
        self._drivers = drivers
        self._epoch: int | None = None
        """The last one in which something was read, or is."""
        self._reading: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")

    async def look(self) -> None:
        """Begin if there is a model to come, stop if a flip has begun; cheap, and called often."""
        if self._reading is not None and self._guard.epoch != self._epoch:
            await self.stop()
        if self._guard.epoch in (None, self._epoch) or not self._guard.models:
            return
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        epoch = self._guard.epoch
        name = await self._next()
        if name is not None and name in self._drivers and self._guard.epoch == epoch:
            self._epoch = epoch
            self._reading = asyncio.create_task(self._warm(name))

    async def stop(self) -> None:
        """End what is being read; returns when it no longer holds anybody up."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
            self._reading = None

    async def _next(self) -> str | None:
        async with self._database.statement() as connection:
            values = {"device": self._guard.device, "resident": list(self._guard.models)}
            name: str | None = (await connection.execute(NEXT, values)).scalar()
        return name

    async def _warm(self, name: str) -> None:
        try:
            await self._drivers[name].warm()
        except Exception:  # noqa: BLE001 - a load that finds nothing in the cache is slower, and that is all
            _log.exception("%s was not read ahead", name)
