"""Periodic work of the orchestrator: sweep, seal banks, and finalise jobs."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from redis.asyncio import Redis

from shared.queue import Ticker, celery_app
from shared.runtime import lifecycle, mining, queue
from shared.runtime.lifecycle import DueJob, EndStep
from shared.runtime.queue import sweep
from shared.settings import Settings
from shared.storage.database import Database, is_passing

OUTAGE_S = 1.0
"""Seconds to wait after a failure, however long the outage lasts: a longer pause would outlast it."""

_log = logging.getLogger(__name__)


class Routine(ABC):
    """Repeats a task through every outage until the orchestrator stops; `wake` shortens the pause."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._completed_at = time.monotonic()

    @abstractmethod
    async def run_once(self) -> float:
        """Do the task once, and return the seconds to wait before the next time."""

    def wake(self) -> None:
        """End the pause, because a job was submitted or ended."""
        self._woken.set()

    @property
    def silent_s(self) -> float:
        """Return the seconds since the task last succeeded, or since it was created."""
        return time.monotonic() - self._completed_at

    async def run(self) -> None:
        """Repeat the task until cancelled."""
        while True:
            self._woken.clear()
            try:
                pause_s = await self.run_once()
                self._completed_at = time.monotonic()
            except Exception:  # noqa: BLE001 - the routine must outlive every outage
                _log.exception("%s failed; trying again", type(self).__name__.lower())
                pause_s = OUTAGE_S
            # Raise a cancellation that `asyncio.wait_for`, by which redis-py sends, may swallow before Python 3.12.
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise asyncio.CancelledError
            await self.pause(pause_s)

    async def pause(self, seconds: float) -> None:
        """Wait for this many seconds, or until `wake` is called."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)


class Sweeper(Routine):
    """Repairs what crashes left, every `sweep_s` and at once when a job is submitted or ends.

    It serves all devices. No flip waits for it, because its work grows with the jobs.
    """

    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        super().__init__()
        self._sweep_s = settings.sweep_s
        self._outage_s = settings.workers.outage_s
        self._database = database
        self.ticker = Ticker(celery_app(settings.redis_url, settings.workers.tick_s), redis)

    async def run_once(self) -> float:
        """Repair, then tick every lane that has work."""
        await queue.sweep_outages(self._database, "sweeper", self._outage_s)
        for lane in await sweep(self._database, "sweeper"):
            await self.ticker.tick(lane)
        return self._sweep_s


LOOK_S = 1.0
"""Seconds to wait while no bank can be sealed."""
DUE_S = 0.25
"""Seconds to wait while no job is due: a large job waits for it after its preparation and before its end."""
AGAIN_S = 30.0
"""Seconds to wait before a bank that could not be sealed is tried again."""


class Sealer(Routine):
    """Turns mined rules into rule banks, one after the other; one that cannot be sealed does not delay the
    others. It has its own loop, because a large bank takes a minute.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._not_before: dict[str, float] = {}
        """Monotonic time of the next try, by the name of a bank that could not be sealed."""

    async def run_once(self) -> float:
        """Seal every bank whose job has ended."""
        for bank in await mining.list_due_banks(self._database):
            if time.monotonic() >= self._not_before.get(bank, 0.0):
                try:
                    await mining.seal_bank(self._database, bank)
                except Exception as error:
                    if is_passing(error):
                        raise
                    self._not_before[bank] = time.monotonic() + AGAIN_S
                    _log.exception("rule bank %s cannot be sealed, trying again in %.0f s", bank, AGAIN_S)
        return LOOK_S


POSTPONED_S = (5.0, 30.0, 300.0)
"""Seconds to wait before a job that failed to advance is tried again; the last value is used for all further tries.
"""


class Finaliser(Routine):
    """Ends jobs in batches: one of each job in turn, so that neither a large job nor a broken one delays the others.

    Several may run, and workers end small jobs themselves: an advisory lock keeps two of them from chaining the same
    job.
    """

    def __init__(self, database: Database, started: Callable[[], None] = lambda: None) -> None:
        """`started` is called when a job has got its samples."""
        super().__init__()
        self._database = database
        self._started = started
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        """Monotonic time of the next try, by job that could not be advanced."""

    async def run_once(self) -> float:
        """Take one step of every job that is due."""
        steps = [await self._advance(due) for due in await lifecycle.list_due_jobs(self._database)]
        return 0.0 if EndStep.MOVED in steps else DUE_S

    async def _advance(self, due: DueJob) -> EndStep:
        if time.monotonic() < self._not_before.get(due.job, float("-inf")):
            return EndStep.WAITS
        try:
            taken = await lifecycle.end_job_step(self._database, due)
        except Exception as error:
            if is_passing(error):
                raise
            job = due.job
            failures = self._failures[job] = self._failures.get(job, 0) + 1
            pause_s = POSTPONED_S[min(failures, len(POSTPONED_S)) - 1]
            self._not_before[job] = time.monotonic() + pause_s
            _log.error("job %d cannot be brought to its end, trying again in %.0f s", job, pause_s, exc_info=error)
            await lifecycle.record_reason(self._database, job, error)
            return EndStep.WAITS
        self._failures.pop(due.job, None)
        self._not_before.pop(due.job, None)
        if due.state == "preparing" and taken is not EndStep.WAITS:
            self._started()
        return taken
