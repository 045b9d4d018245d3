"""Caches the verdicts of ended jobs, which never change, so that they are counted once."""

import uuid
from collections import OrderedDict
from collections.abc import Iterable

from shared.statistics.shares import Graded
from shared.storage import jobs, verdicts
from shared.storage.database import Database
from shared.storage.jobs import Job

CACHE_SIZE = 5000
"""Number of jobs in the cache; each takes a few numbers."""


class EndedVerdicts:
    """The verdicts of the jobs that were requested last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[uuid.UUID, Graded] = OrderedDict()

    async def get(self, database: Database, found: Iterable[Job]) -> dict[uuid.UUID, Graded]:
        """Return how many items were answered correctly how often, for those jobs among `found` that have ended."""
        ended = [job.id for job in found if job.ended]
        missing = [job for job in ended if job not in self._kept]
        counted = await _count(database, missing) if missing else {}
        graded = {job: self._kept[job] if job in self._kept else counted[job] for job in ended}
        self._keep(graded)
        return graded

    def _keep(self, graded: dict[uuid.UUID, Graded]) -> None:
        self._kept.update(graded)
        for job in graded:
            self._kept.move_to_end(job)
        while len(self._kept) > CACHE_SIZE:
            self._kept.popitem(last=False)


async def _count(database: Database, missing: list[uuid.UUID]) -> dict[uuid.UUID, Graded]:
    async with database.snapshot() as connection:
        rows = await jobs.find_row_ids(connection, missing)
        graded = await verdicts.count_verdicts(connection, list(rows.values()))
    return {job: graded.get(rows.get(job, -1), {}) for job in missing}
