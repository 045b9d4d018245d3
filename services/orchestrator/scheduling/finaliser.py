"""The finaliser: brings jobs to their end a batch at a time, whatever their size, beside everything else.

Several may run, and workers end small jobs themselves: an advisory lock keeps two from chaining the same job.
"""

import logging
import time
from collections.abc import Callable

from services.orchestrator.scheduling.routine import Routine
from shared.runtime import ending
from shared.runtime.ending import Due
from shared.runtime.finalising import Step
from shared.storage.database import Database
from shared.storage.outages import passing

LOOK_S = 1.0
"""Pause while no job can be brought on."""
POSTPONED_S = (5.0, 30.0, 300.0)
"""Before a job is tried again that could not be brought on; the last one for all that follow."""

_log = logging.getLogger(__name__)


class Finaliser(Routine):
    """One batch of each job in turn, so that a small job does not wait for a large one, nor any for a broken one."""

    def __init__(self, database: Database, started: Callable[[], None] = lambda: None) -> None:
        """`started` is called when a job has got its samples."""
        super().__init__()
        self._database = database
        self._started = started
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        """By job that could not be brought on."""

    async def once(self) -> float:
        """One step of every job that is due."""
        steps = [await self._step(due) for due in await ending.due(self._database)]
        return 0.0 if Step.MOVED in steps else LOOK_S

    async def _step(self, due: Due) -> Step:
        if time.monotonic() < self._not_before.get(due.job, float("-inf")):
            return Step.WAITS
        try:
            taken = await ending.step(self._database, due)
        except Exception as error:
            if passing(error):
                raise
            await self._postpone(due.job, error)
            return Step.WAITS
        self._failures.pop(due.job, None)
        self._not_before.pop(due.job, None)
        if due.state == "preparing" and taken is not Step.WAITS:
            self._started()
        return taken

    async def _postpone(self, job: int, error: Exception) -> None:
        failures = self._failures[job] = self._failures.get(job, 0) + 1
        pause_s = POSTPONED_S[min(failures, len(POSTPONED_S)) - 1]
        self._not_before[job] = time.monotonic() + pause_s
        _log.error("job %d cannot be brought to its end, trying again in %.0f s", job, pause_s, exc_info=error)
        await ending.explain(self._database, job, error)
