"""Share one read among all who poll the same: jobs, their counts, and lists."""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.recent import LruCache
from shared.storage import jobs
from shared.storage.database import Database, get_project
from shared.storage.jobs import Job

COUNTS_KEPT = 5000
"""Number of jobs in the cache; each takes a few numbers."""
K = TypeVar("K")


class EndedCounts(Generic[K]):
    """Caches counts over the samples of ended jobs, which never change; `count` returns them by row id, without jobs
    that have none.
    """

    def __init__(
        self, count: Callable[[AsyncConnection, Sequence[int]], Awaitable[Mapping[int, Mapping[K, int]]]]
    ) -> None:
        self._count = count
        self._recent: LruCache[Mapping[K, int]] = LruCache(COUNTS_KEPT)

    async def get(self, database: Database, found: Iterable[Job]) -> dict[uuid.UUID, Mapping[K, int]]:
        """Return the counts of those jobs among `found` that have ended."""
        ended = [job.id for job in found if job.ended]
        counts = self._recent.find(ended)
        if missing := [job for job in ended if job not in counts]:
            async with database.snapshot() as connection:
                rows = await jobs.find_row_ids(connection, missing)
                counted = await self._count(connection, list(rows.values()))
            counts |= {job: counted.get(rows.get(job, -1), {}) for job in missing}
            self._recent.keep(counts)
        return counts


T = TypeVar("T")
POLL_S = 1.0
"""Seconds between two reads of a watched object."""


class Polls:
    """Reads each watched object once per poll for all clients that watch it."""

    def __init__(self, pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(POLL_S)) -> None:
        self._pause = pause
        self._due: dict[Hashable, asyncio.Task[Any]] = {}
        """Polls that have not read yet, by the key of their object."""

    async def wait_for_next(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the next poll of `key`; all callers that wait for that poll share its result.

        A poll leaves the list before it reads: a later caller may already have seen newer data than it will find.
        """
        key = get_project(), key
        task = self._due.get(key)
        if task is None:
            task = self._due[key] = asyncio.create_task(self._poll(key, read))
            task.add_done_callback(retrieve_exception)
        found: T = await asyncio.shield(task)
        return found

    async def _poll(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        try:
            await self._pause()
        finally:
            del self._due[key]
        return await read()


def retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a shared task, so that asyncio does not warn when all who waited for it are gone."""
    if not task.cancelled():
        task.exception()


FRESH_S = 0.5
TRUSTED_S = 0.1
COST = 10
OLDEST_S = 15.0
"""A single slow count on a busy machine must not freeze the progress that people watch."""
VIEWS_KEPT = 1000


class CachedView(NamedTuple):
    """A view, and the time until which it may be shown."""

    job: Job
    until: float


class JobViewCache:
    """Caches the last counted view of each job, because counting a large job's samples and calls is expensive.

    A change of state shows within `TRUSTED_S`, and at once to the client whose request to this process made it.
    Progress may be as old as `FRESH_S`, or ten times the duration of its counting, but `OLDEST_S` at most. So, however
    many clients poll, a job is read ten times a second at most, and counts of up to 1.5 s take at most a tenth of one
    connection's time.
    """

    def __init__(self, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._kept: OrderedDict[int, CachedView] = OrderedDict()
        self._trusted: dict[tuple[str | None, str], CachedView] = {}
        """Views by project and reference that were looked up less than `TRUSTED_S` ago."""
        self._lookups: dict[tuple[str | None, str], asyncio.Task[Job]] = {}
        self._counts: dict[int, asyncio.Task[Job]] = {}

    async def get(self, database: Database, reference: str) -> Job:
        """Return the job that `reference` names.

        Raises:
            NotFound: it does not exist.
            Conflict: the name is ambiguous.
        """
        key = get_project(), reference
        trusted = self._trusted.get(key)
        if trusted is not None and self._clock() < trusted.until:
            return trusted.job
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(self._look_up(database, reference))
            lookup.add_done_callback(retrieve_exception)
        return await asyncio.shield(lookup)

    def forget(self) -> None:
        """Make the next request of every job read it, because this process has changed a job."""
        self._trusted.clear()
        self._lookups.clear()

    async def _look_up(self, database: Database, reference: str) -> Job:
        """Read the current view; concurrent callers share it."""
        mine, key = asyncio.current_task(), (get_project(), reference)
        try:
            async with database.statement() as connection:
                row = await jobs.resolve(connection, reference)
                version = await jobs.find_version(connection, row)
            kept = self._kept.get(row)
            if kept is not None and kept.job.version == version and (kept.job.ended or self._clock() < kept.until):
                job = kept.job
            else:
                job = await self._count(database, row)
        finally:
            still = self._lookups.get(key) is mine
            if still:
                del self._lookups[key]
        if still:  # else something was changed in the meantime
            if len(self._trusted) >= VIEWS_KEPT:
                self._trusted.clear()
            self._trusted[key] = CachedView(job, self._clock() + min(TRUSTED_S, self._fresh_s))
        return job

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
        self._kept[row] = CachedView(job, ended + max(self._fresh_s, min(COST * (ended - began), OLDEST_S)))
        self._kept.move_to_end(row)
        while len(self._kept) > VIEWS_KEPT:
            self._kept.popitem(last=False)
        return job
