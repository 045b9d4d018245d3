"""Views of jobs as pollers see them: counting a large job's samples and calls costs, so pollers share the counts.

A change of state shows within `TRUSTED_S`, and at once to who made it here; progress may be as old as `FRESH_S`, or ten
times as long as its counting took. So however many poll, a job is asked for ten times a second, and counting takes a
tenth of the time of one connection at most.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from services.orchestrator.polling.polls import retrieve_exception
from shared.storage import jobs
from shared.storage.database import Database
from shared.storage.jobs import Job

FRESH_S = 0.5
TRUSTED_S = 0.1
COST = 10
KEPT = 1000


class CachedView(NamedTuple):
    """A view, and until when it may be shown."""

    job: Job
    until: float


class JobViewCache:
    """The last counted view of each job."""

    def __init__(self, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._kept: OrderedDict[int, CachedView] = OrderedDict()
        self._trusted: dict[str, CachedView] = {}
        """By reference, what was looked up so lately that it is not asked for again."""
        self._lookups: dict[str, asyncio.Task[Job]] = {}
        self._counts: dict[int, asyncio.Task[Job]] = {}

    async def get(self, database: Database, reference: str) -> Job:
        """The job that `reference` stands for.

        Raises:
            NotFound, Conflict: there is none, or there are several.
        """
        trusted = self._trusted.get(reference)
        if trusted is not None and self._clock() < trusted.until:
            return trusted.job
        lookup = self._lookups.get(reference)
        if lookup is None:
            lookup = self._lookups[reference] = asyncio.create_task(self._look_up(database, reference))
            lookup.add_done_callback(retrieve_exception)
        return await asyncio.shield(lookup)

    def forget(self) -> None:
        """Have the next request of every job read it: a job was changed by this process."""
        self._trusted.clear()
        self._lookups.clear()

    async def _look_up(self, database: Database, reference: str) -> Job:
        """The current view; all who ask meanwhile share it."""
        mine = asyncio.current_task()
        try:
            job = await self._current(database, reference)
        finally:
            still = self._lookups.get(reference) is mine
            if still:
                del self._lookups[reference]
        if still:  # else something was changed meanwhile
            if len(self._trusted) >= KEPT:
                self._trusted.clear()
            self._trusted[reference] = CachedView(job, self._clock() + min(TRUSTED_S, self._fresh_s))
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
        """A new count; all who ask meanwhile share it."""
        task = self._counts.get(row)
        if task is None:
            task = self._counts[row] = asyncio.create_task(self._count_alone(database, row))
        return await asyncio.shield(task)

    async def _count_alone(self, database: Database, row: int) -> Job:
        began = self._clock()
        try:
            async with database.snapshot() as connection:
                job = await jobs.view(connection, row)
        finally:
            del self._counts[row]
        ended = self._clock()
        self._kept[row] = CachedView(job, ended + max(self._fresh_s, COST * (ended - began)))
        self._kept.move_to_end(row)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return job
