"""Views of jobs as pollers see them: counting a large job's samples and calls costs, so what was counted is shared.

A change of state shows within `TRUSTED_S`, and at once to who made it here; progress may be as old as `FRESH_S`, or ten
times as long as its counting took. So however many poll, a job is asked for ten times a second, and counting takes a
tenth of the time of one connection at most.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from shared.storage import jobs
from shared.storage.database import Database
from shared.storage.jobs import Job

FRESH_S = 0.5
TRUSTED_S = 0.1
COST = 10
KEPT = 1000


class Glance(NamedTuple):
    """A view, and until when it may be shown."""

    job: Job
    until: float


class Glances:
    """What was counted last, by job."""

    def __init__(self, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._kept: OrderedDict[int, Glance] = OrderedDict()
        self._trusted: dict[str, Glance] = {}
        """By reference, what was looked up so lately that it is not asked for again."""
        self._looking: dict[str, asyncio.Task[Job]] = {}
        self._counting: dict[int, asyncio.Task[Job]] = {}

    async def get(self, database: Database, reference: str) -> Job:
        """The job that `reference` stands for.

        Raises:
            NotFound, Conflict: there is none, or there are several.
        """
        trusted = self._trusted.get(reference)
        if trusted is not None and self._clock() < trusted.until:
            return trusted.job
        looking = self._looking.get(reference)
        if looking is None:
            looking = self._looking[reference] = asyncio.create_task(self._looked(database, reference))
            looking.add_done_callback(_noticed)
        return await asyncio.shield(looking)

    def forget(self) -> None:
        """Somebody has changed a job here: whoever asks next looks."""
        self._trusted.clear()
        self._looking.clear()

    async def _looked(self, database: Database, reference: str) -> Job:
        """Look, once for all who ask meanwhile."""
        mine = asyncio.current_task()
        try:
            job = await self._current(database, reference)
        finally:
            still = self._looking.get(reference) is mine
            if still:
                del self._looking[reference]
        if still:  # else something was changed meanwhile
            if len(self._trusted) >= KEPT:
                self._trusted.clear()
            self._trusted[reference] = Glance(job, self._clock() + min(TRUSTED_S, self._fresh_s))
        return job

    async def _current(self, database: Database, reference: str) -> Job:
        async with database.statement() as connection:
            row = await jobs.resolve(connection, reference)
            version = await jobs.version(connection, row)
        kept = self._kept.get(row)
        if kept is not None and kept.job.version == version and (kept.job.ended or self._clock() < kept.until):
            return kept.job
        return await self._count(database, row)

    async def _count(self, database: Database, row: int) -> Job:
        """Count, once for all who ask meanwhile."""
        task = self._counting.get(row)
        if task is None:
            task = self._counting[row] = asyncio.create_task(self._counted(database, row))
        return await asyncio.shield(task)

    async def _counted(self, database: Database, row: int) -> Job:
        began = self._clock()
        try:
            async with database.snapshot() as connection:
                job = await jobs.view(connection, row)
        finally:
            del self._counting[row]
        ended = self._clock()
        self._kept[row] = Glance(job, ended + max(self._fresh_s, COST * (ended - began)))
        self._kept.move_to_end(row)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return job


def _noticed(task: "asyncio.Task[Job]") -> None:
    """An error is for those who still wait; where nobody does, it is nobody's."""
    if not task.cancelled():
        task.exception()
