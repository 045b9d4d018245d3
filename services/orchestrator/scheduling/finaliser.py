"""The finaliser ends jobs in batches, whatever their size, while everything else goes on.

Several may run, and workers end small jobs themselves: an advisory lock keeps two of them from chaining the same
job.
"""

import logging
import time
from collections.abc import Callable

from services.orchestrator.scheduling.routine import Routine
from shared.runtime import lifecycle
from shared.runtime.lifecycle import DueJob, EndStep
from shared.storage.database import Database, is_passing

LOOK_S = 1.0
"""Seconds to wait while no job can be advanced."""
POSTPONED_S = (5.0, 30.0, 300.0)
"""Seconds to wait before a job that failed to advance is tried again; the last value is used for all further tries.
"""

_log = logging.getLogger(__name__)


class Finaliser(Routine):
    """Takes one batch of each job in turn, so that neither a large job nor a broken one delays the others."""

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
        return 0.0 if EndStep.MOVED in steps else LOOK_S

    async def _advance(self, due: DueJob) -> EndStep:
        if time.monotonic() < self._not_before.get(due.job, float("-inf")):
            return EndStep.WAITS
        try:
            taken = await lifecycle.end_job_step(self._database, due)
        except Exception as error:
            if is_passing(error):
                raise
            await self._postpone(due.job, error)
            return EndStep.WAITS
        self._failures.pop(due.job, None)
        self._not_before.pop(due.job, None)
        if due.state == "preparing" and taken is not EndStep.WAITS:
            self._started()
        return taken

    async def _postpone(self, job: int, error: Exception) -> None:
        failures = self._failures[job] = self._failures.get(job, 0) + 1
        pause_s = POSTPONED_S[min(failures, len(POSTPONED_S)) - 1]
        self._not_before[job] = time.monotonic() + pause_s
        _log.error("job %d cannot be brought to its end, trying again in %.0f s", job, pause_s, exc_info=error)
        await lifecycle.record_reason(self._database, job, error)
