"""What a worker process finds out by itself: whose devices its guards own."""

from collections.abc import AsyncIterator, Mapping

import pytest
from redis.asyncio import Redis

from shared.contracts.calls import Lane
from shared.lease import guards as module
from shared.lease.guard_client import GuardClient, NotGranted
from shared.lease.lease import Phase, RedisLease
from shared.queue import celery_app
from shared.runtime.execution import Executor
from shared.runtime.process import Child, Tools
from shared.settings import Settings
from shared.storage.database import Database
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.integration.scene import ScriptedExecutor, furnish, model, run_sql, scalar, submit_job

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
async def worker(
    database: Database, database_url: str, redis_url: str, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Child]:
    """A worker process of the generate lane, before its first tick; it asks a guard that is away at every look."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": ScriptedExecutor()}

    settings = Settings(database_url=database_url, redis_url=redis_url, guard_url=guard.url)
    child = Child(Lane.GENERATE, settings, celery_app(redis_url, 60), executors, lambda: False)
    yield child
    await child._tools.database.close()
    await child._tools.guards.close()
    await child._redis.aclose()


@pytest.fixture
async def queued(database: Database, redis_url: str) -> None:
    """Three calls of a model on the guard's device, whose lease is open."""
    await furnish(database, items=3)
    await run_sql(database, "UPDATE models SET device = :device WHERE needs_lease", device=DEVICE)
    await submit_job(database, "closed-book")
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(1, Phase.OPEN, [await model(database)])


@pytest.mark.usefixtures("queued")
async def test_a_worker_works_under_the_lease_of_the_guard_that_it_was_given(worker: Child, database: Database) -> None:
    """The lease of the device that its settings name would let it claim nothing."""
    await worker._drain()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued")
async def test_a_worker_claims_nothing_for_a_device_whose_guard_it_was_not_given(
    worker: Child, database: Database, guard: ChatServer
) -> None:
    """Another box has that one: its lease is open, but from here nobody answers."""
    guard.respond = lambda _: as_json({"device": "cpu:9", "state": "open"})
    await worker._drain()
    assert await scalar(database, ANSWERED) == 0
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL AND not_before IS NULL") == 3


@pytest.mark.usefixtures("queued")
async def test_a_worker_without_a_guard_leaves_the_way_free_for_the_next_tick(
    worker: Child, database: Database, guard: ChatServer, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, advances what is ready all the same, and the guard may come later."""
    own, guard.respond = guard.respond, lambda _: Reply(status=503)
    await worker._drain()  # what it advances gives its lane work, and a tick
    async with Redis.from_url(redis_url) as redis:
        assert await redis.exists("mathrag:tick:generate")
        await worker._drain()
        assert not await redis.exists("mathrag:tick:generate")
    assert guard.url in caplog.text
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 3
    guard.respond = own
    await worker._drain()
    assert await scalar(database, ANSWERED) == 3


async def test_a_guard_that_is_away_is_not_asked_at_every_look(
    worker: Child, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing answers, each try costs time that the other devices' calls would wait for."""
    guard.respond = lambda _: Reply(status=503)
    monkeypatch.setattr(module, "PAUSE_S", 3600.0)
    for _ in range(3):
        assert await worker._tools.guards.leases() == {}
    assert len(guard.seen) == 1


async def test_a_guard_that_is_not_there_has_no_name() -> None:
    """Connection refused, as where a chunk is sent."""
    async with chat_server(lambda _: Reply()) as gone:
        pass
    client = GuardClient(gone.url)
    with pytest.raises(NotGranted):
        await client.device()
    await client.close()
