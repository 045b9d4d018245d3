"""Caches counts over the samples of ended jobs, which never change, so that they are counted once."""

import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import jobs
from shared.storage.database import Database
from shared.storage.jobs import Job

CACHE_SIZE = 5000
"""Number of jobs in the cache; each takes a few numbers."""
K = TypeVar("K")


class EndedCounts(Generic[K]):
    """The counts of the jobs that were requested last; `count` returns them by row id, without jobs that have none."""

    def __init__(
        self, count: Callable[[AsyncConnection, Sequence[int]], Awaitable[Mapping[int, Mapping[K, int]]]]
    ) -> None:
        self._count = count
        self._kept: OrderedDict[uuid.UUID, Mapping[K, int]] = OrderedDict()

    async def get(self, database: Database, found: Iterable[Job]) -> dict[uuid.UUID, Mapping[K, int]]:
        """Return the counts of those jobs among `found` that have ended."""
        ended = [job.id for job in found if job.ended]
        missing = [job for job in ended if job not in self._kept]
        counted = await self._load(database, missing) if missing else {}
        counts = {job: self._kept[job] if job in self._kept else counted[job] for job in ended}
        self._keep(counts)
        return counts

    def _keep(self, counts: Mapping[uuid.UUID, Mapping[K, int]]) -> None:
        self._kept.update(counts)
        for job in counts:
            self._kept.move_to_end(job)
        while len(self._kept) > CACHE_SIZE:
            self._kept.popitem(last=False)

    async def _load(self, database: Database, missing: list[uuid.UUID]) -> dict[uuid.UUID, Mapping[K, int]]:
        async with database.snapshot() as connection:
            rows = await jobs.find_row_ids(connection, missing)
            counted = await self._count(connection, list(rows.values()))
        return {job: counted.get(rows.get(job, -1), {}) for job in missing}
