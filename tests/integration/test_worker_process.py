"""What a worker process finds out by itself: whose device it works for."""

from collections.abc import AsyncIterator, Mapping

import pytest
from redis.asyncio import Redis

from shared.contracts.calls import Lane
from shared.lease.guard_client import GuardClient, NotGranted
from shared.lease.lease import Phase, RedisLease
from shared.queue import Ticker, celery_app
from shared.runtime.execution import Executor
from shared.runtime.process import Child, Tools
from shared.settings import Settings
from shared.storage.database import Database
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.integration.scene import ScriptedExecutor, furnish, model, scalar, submit_job

pytestmark = pytest.mark.anyio
DEVICE = "cpu:7"
"""Not the default, and no setting of the worker says so."""
ANSWERED = "SELECT count(*) FROM attempts WHERE accepted"


@pytest.fixture
async def guard() -> AsyncIterator[ChatServer]:
    """One that says whose guard it is."""
    async with chat_server(lambda _: as_json({"device": DEVICE, "state": "open"})) as double:
        yield double


@pytest.fixture
async def worker(database: Database, database_url: str, redis_url: str, guard: ChatServer) -> AsyncIterator[Child]:
    """A worker process of the generate lane, before its first tick."""

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": ScriptedExecutor()}

    settings = Settings(database_url=database_url, redis_url=redis_url, guard_url=guard.url)
    child = Child(Lane.GENERATE, settings, celery_app(redis_url, 60), executors, lambda: False)
    yield child
    await child._tools.database.close()
    await child._tools.guard.close()
    await child._redis.aclose()


async def test_a_worker_works_under_the_lease_of_the_guard_that_it_was_given(
    worker: Child, database: Database, redis_url: str
) -> None:
    """The lease of the device that its settings name would let it claim nothing."""
    await furnish(database, items=3)
    await submit_job(database, "closed-book")
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(1, Phase.OPEN, [await model(database)])
    await worker._drain()
    assert await scalar(database, ANSWERED) == 3


async def test_a_worker_without_a_guard_leaves_the_way_free_for_the_next_tick(
    worker: Child, guard: ChatServer, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and the guard may come later."""
    own, guard.respond = guard.respond, lambda _: Reply(status=503)
    app = celery_app(redis_url, 60)
    async with Redis.from_url(redis_url) as redis:
        await Ticker(app, redis).tick(Lane.GENERATE)
        await worker._drain()
        assert not await redis.exists("mathrag:tick:generate")
    assert guard.url in caplog.text
    guard.respond = own
    await worker._drain()
    assert worker._worker is not None
    app.close()


async def test_a_guard_that_is_not_there_has_no_name() -> None:
    """Connection refused, as where a chunk is sent."""
    async with chat_server(lambda _: Reply()) as gone:
        pass
    client = GuardClient(gone.url)
    with pytest.raises(NotGranted):
        await client.device()
    await client.close()
