"""Runs the sweeper, which repairs what crashes left, every `sweep_s` and at once when a job is submitted or ends."""

from redis.asyncio import Redis

from services.orchestrator.scheduling.routine import Routine
from shared.queue import Ticker, celery_app
from shared.runtime import queue
from shared.runtime.queue import sweep
from shared.settings import Settings
from shared.storage.database import Database


class Sweeper(Routine):
    """Sweeps the work of all devices. No flip waits for it, because its work grows with the jobs."""

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        super().__init__()
        self._sweep_s = settings.sweep_s
        self._outage_s = settings.workers.outage_s
        self._database = database
        self._ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)

    async def run_once(self) -> float:
        """Repair, then tick every lane that has work."""
        await queue.sweep_outages(self._database, "sweeper", self._outage_s)
        for lane in await sweep(self._database, "sweeper"):
            await self._ticker.tick(lane)
        return self._sweep_s
