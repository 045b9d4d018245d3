"""Read the next model's files into the page cache while the present residency works, so that a flip need not wait for
the disk. This happens at most once per residency, and stops when a flip begins.
"""

import asyncio
import logging
from collections.abc import Mapping

from sqlalchemy import text

from services.guard.drivers.ports import Driver
from services.guard.guard import Guard
from shared.storage.database import Database

POLL_S = 2.0
"""Between two queries of the queue while it holds no calls of another model."""

# In the policy's order: the judge's models first. It reads one index entry per model and lane, however long the queue.
NEXT = text("""
    SELECT m.name FROM models m CROSS JOIN unnest(ARRAY['judge', 'generate']) WITH ORDINALITY l(lane, place)
    WHERE m.served AND m.needs_lease AND m.device = :device AND NOT m.id = ANY(:resident)
      AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id)
    ORDER BY l.place, m.id LIMIT 1""")

_log = logging.getLogger(__name__)


class Warmer:
    """Reads ahead for one device."""

    def __init__(self, database: Database, guard: Guard, drivers: Mapping[str, Driver]) -> None:
        self._database = database
        self._guard = guard
        self._drivers = drivers
        self._epoch: int | None = None
        """The last epoch in which something was read ahead."""
        self._reading: asyncio.Task[None] | None = None
        self._polled_at = float("-inf")

    async def poll(self) -> None:
        """Begin to read if another model has calls, stop if a flip has begun; cheap enough to be called often."""
        if self._reading is not None and self._guard.epoch != self._epoch:
            await self.stop()
        if self._guard.epoch in (None, self._epoch) or not self._guard.models:
            return
        now = asyncio.get_running_loop().time()
        if now - self._polled_at < POLL_S:
            return
        self._polled_at = now
        epoch = self._guard.epoch
        name = await self._find_next()
        if name is not None and name in self._drivers and self._guard.epoch == epoch:
            self._epoch = epoch
            self._reading = asyncio.create_task(self._warm(name))

    async def stop(self) -> None:
        """Stop reading and return when the disk is free again."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
            self._reading = None

    async def _find_next(self) -> str | None:
        async with self._database.statement() as connection:
            values = {"device": self._guard.device, "resident": list(self._guard.models)}
            name: str | None = (await connection.execute(NEXT, values)).scalar()
        return name

    async def _warm(self, name: str) -> None:
        try:
            await self._drivers[name].warm()
        except Exception:  # noqa: BLE001 - a load without the cache is only slower
            _log.exception("%s was not read ahead", name)
