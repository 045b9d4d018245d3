"""Caches views of jobs for pollers, because counting a large job's samples and calls is expensive.

A change of state shows within `TRUSTED_S`, and at once to the client whose request to this process made it. Progress
may be as old as `FRESH_S`, or ten times the duration of its counting. So, however many clients poll, a job is read
ten times a second at most, and counting takes at most a tenth of one connection's time.
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
CACHE_SIZE = 1000


class CachedView(NamedTuple):
    """A view, and the time until which it may be shown."""

    job: Job
    until: float


class JobViewCache:
    """Caches the last counted view of each job."""

    def __init__(self, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._kept: OrderedDict[int, CachedView] = OrderedDict()
        self._trusted: dict[str, CachedView] = {}
        """Views by reference that were looked up less than `TRUSTED_S` ago."""
        self._lookups: dict[str, asyncio.Task[Job]] = {}
        self._counts: dict[int, asyncio.Task[Job]] = {}

    async def get(self, database: Database, reference: str) -> Job:
        """Return the job that `reference` names.

        Raises:
            NotFound: there is none.
            Conflict: there are several.
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
        """Make the next request of every job read it, because this process has changed a job."""
        self._trusted.clear()
        self._lookups.clear()

    async def _look_up(self, database: Database, reference: str) -> Job:
        """Read the current view; concurrent callers share it."""
        mine = asyncio.current_task()
        try:
            job = await self._load_current(database, reference)
        finally:
            still = self._lookups.get(reference) is mine
            if still:
                del self._lookups[reference]
        if still:  # else something was changed meanwhile
            if len(self._trusted) >= CACHE_SIZE:
                self._trusted.clear()
            self._trusted[reference] = CachedView(job, self._clock() + min(TRUSTED_S, self._fresh_s))
        return job

    async def _load_current(self, database: Database, reference: str) -> Job:
        async with database.statement() as connection:
            row = await jobs.resolve(connection, reference)
            version = await jobs.find_version(connection, row)
        kept = self._kept.get(row)
        if kept is not None and kept.job.version == version and (kept.job.ended or self._clock() < kept.until):
            return kept.job
        return await self._count(database, row)

    async def _count(self, database: Database, row: int) -> Job:
        """Count the job again; concurrent callers share the result."""
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
        while len(self._kept) > CACHE_SIZE:
            self._kept.popitem(last=False)
        return job
