"""Polling a job counts it once in a while; a change of its state shows at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.polling import COST, FRESH_S, TRUSTED_S, JobViewCache
from shared.errors import NotFound
from shared.runtime.lifecycle import cancel
from shared.storage.database import Database
from tests.integration.scene import furnish, run_sql, submit_job

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.cost = 0.0

    def __call__(self) -> float:
        return self.now


class CountingDatabase(Database):
    def __init__(self, database: Database, clock: Clock) -> None:
        self.engine = database.engine
        self.snapshots = 0
        self._clock = clock

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        self.snapshots += 1
        async with super().snapshot() as connection:
            yield connection
        self._clock.now += self._clock.cost


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def views(clock: Clock) -> JobViewCache:
    return JobViewCache(clock=clock)


@pytest.fixture
async def job(database: Database) -> str:
    await furnish(database, items=3)
    return str(await submit_job(database, "closed-book"))


async def complete_one(database: Database) -> None:
    await run_sql(database, "UPDATE samples SET state = 2, ended_at = now() WHERE id = (SELECT min(id) FROM samples)")


async def test_who_polls_soon_again_costs_no_count(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    assert (await views.get(counted, job)).request_counts.completed == 0
    await complete_one(database)
    clock.now = FRESH_S / 2
    assert (await views.get(counted, job)).request_counts.completed == 0
    clock.now = FRESH_S
    assert (await views.get(counted, job)).request_counts.completed == 1
    assert counted.snapshots == 2


async def test_a_change_of_state_shows_after_a_moment(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    found = await views.get(database, job)
    await cancel(database, found.id)
    clock.now = TRUSTED_S
    assert (await views.get(database, job)).state == "cancelling"


async def test_who_changes_a_job_here_sees_it_at_once(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    found = await views.get(database, job)
    await cancel(database, found.id)
    views.forget()
    assert (await views.get(database, job)).state == "cancelling"


async def test_who_polls_at_once_again_asks_nobody(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    first = await views.get(database, job)
    await run_sql(database, "UPDATE jobs SET name = 'another', version = version + 1")
    assert await views.get(database, job) is first
    clock.now = TRUSTED_S
    assert (await views.get(database, job)).name == "another"


async def test_who_polls_at_the_same_time_shares_a_count(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    await asyncio.gather(*(views.get(counted, job) for _ in range(5)))
    assert counted.snapshots == 1


async def test_what_was_dear_to_count_is_kept_longer(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    clock.cost = 2.0
    await views.get(counted, job)
    clock.now = 2.0 + COST * 2.0 - 0.1
    await views.get(counted, job)
    assert counted.snapshots == 1
    clock.now += 0.1
    await views.get(counted, job)
    assert counted.snapshots == 2


async def test_an_ended_job_is_counted_once_for_all(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    await run_sql(database, "UPDATE samples SET state = 2, ended_at = now()")
    await run_sql(database, "UPDATE jobs SET state = 'completed', ended_at = now(), version = version + 1")
    await views.get(counted, job)
    clock.now = 1e6
    await views.get(counted, job)
    assert counted.snapshots == 1


async def test_an_unknown_job_is_not_found(database: Database, views: JobViewCache) -> None:
    with pytest.raises(NotFound):
        await views.get(database, "nobody")


async def test_an_error_is_for_all_who_asked_and_is_not_kept(
    database: Database, clock: Clock, views: JobViewCache
) -> None:
    both = await asyncio.gather(*(views.get(database, "first") for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in both] == [NotFound, NotFound]
    await furnish(database, items=1)
    await submit_job(database, "closed-book", name="first")
    assert (await views.get(database, "first")).name == "first"
