"""What a worker process does by itself: it learns whose devices its guards own, and goes on while Redis is away."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from shared.calls import Lane
from shared.lease import lease
from shared.lease.lease import GuardClient, Guards, NotGranted, Phase, RedisLease
from shared.queue import celery_app
from shared.runtime.process import ForkedWorker, Tools
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Executor, Lapse, Release
from shared.settings import Settings, Workers
from shared.storage.database import Database
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.faults.proxy import Proxy
from tests.integration.scene import ScriptedExecutor, advance, furnish, model, run_sql, scalar, submit_job

pytestmark = pytest.mark.anyio
DEVICE = "cpu:7"
"""Not the default, and no setting of the worker says so."""
ANSWERED = "SELECT count(*) FROM attempts WHERE accepted"
FREE = "SELECT count(*) FROM queue WHERE token IS NULL AND lane = 'generate'"
TICK_S = 0.05


@pytest.fixture
async def guard() -> AsyncIterator[ChatServer]:
    async with chat_server(lambda _: as_json({"device": DEVICE, "state": "open"})) as double:
        yield double


@pytest.fixture
async def worker(
    database: Database, database_url: str, redis_url: str, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ForkedWorker]:
    monkeypatch.setattr(lease, "PAUSE_S", 0.0)

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": ScriptedExecutor()}

    settings = Settings(database_url=database_url, redis_url=redis_url, guard_url=guard.url)
    child = ForkedWorker(Lane.GENERATE, settings, celery_app(redis_url, 60), executors, lambda: False)
    yield child
    await child.close()


@pytest.fixture
async def queued(database: Database, redis_url: str) -> None:
    await furnish(database, items=3)
    await run_sql(database, "UPDATE models SET device = :device WHERE needs_lease", device=DEVICE)
    await submit_job(database, "closed-book")
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(1, Phase.OPEN, [await model(database)])


@pytest.mark.usefixtures("queued")
async def test_a_worker_works_under_the_lease_of_the_guard_that_it_was_given(
    worker: ForkedWorker, database: Database
) -> None:
    await worker.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued")
async def test_a_worker_claims_nothing_for_a_device_whose_guard_it_was_not_given(
    worker: ForkedWorker, database: Database, guard: ChatServer
) -> None:
    guard.respond = lambda _: as_json({"device": "cpu:9", "state": "open"})
    await worker.drain_lane()
    assert await scalar(database, ANSWERED) == 0
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL AND not_before IS NULL") == 3


@pytest.mark.usefixtures("queued")
async def test_a_worker_without_a_guard_leaves_the_way_free_for_the_next_tick(
    worker: ForkedWorker, database: Database, guard: ChatServer, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    own, guard.respond = guard.respond, lambda _: Reply(status=503)
    await worker.drain_lane()  # what it advances gives its lane work, and a tick
    async with Redis.from_url(redis_url) as redis:
        assert await redis.exists("mathrag:tick:generate")
        await worker.drain_lane()
        assert not await redis.exists("mathrag:tick:generate")
    assert guard.url in caplog.text
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 3
    guard.respond = own
    await worker.drain_lane()
    assert await scalar(database, ANSWERED) == 3


async def test_a_guard_that_is_away_is_not_asked_at_every_look(
    worker: ForkedWorker, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.respond = lambda _: Reply(status=503)
    monkeypatch.setattr(lease, "PAUSE_S", 3600.0)
    for _ in range(3):
        assert await worker.tools.guards.read_leases() == {}
    assert len(guard.seen) == 1


async def test_a_guard_that_is_not_there_has_no_name() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    client = GuardClient(gone.url)
    with pytest.raises(NotGranted):
        await client.read_device()
    await client.close()


@pytest.fixture
def cable(redis_url: str) -> Iterator[Proxy]:
    port = urlsplit(redis_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


class Cutting(ScriptedExecutor):
    def __init__(self, cable: Proxy) -> None:
        super().__init__()
        self.stopping = False
        self.stops_worker = False
        self._cable = cable

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        self._cable.part()
        await asyncio.sleep(2 * TICK_S)
        async for each in super().run(calls, epoch):
            yield each
        self.stopping = self.stops_worker


@pytest.fixture
def model_that_cuts(cable: Proxy) -> Cutting:
    return Cutting(cable)


@pytest.fixture
async def cut_off(
    database: Database, database_url: str, redis_url: str, guard: ChatServer, cable: Proxy, model_that_cuts: Cutting
) -> AsyncIterator[ForkedWorker]:
    guard.respond = lambda _: as_json({"device": DEVICE, "state": "open"})

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": model_that_cuts}

    url = redis_url.replace(f":{urlsplit(redis_url).port}", f":{cable.port}")
    settings = Settings(
        database_url=database_url,
        redis_url=url,
        guard_url=guard.url,
        workers=Workers(tick_s=TICK_S, chunk=1, streams=1),
    )
    app = celery_app(url, 60)
    child = ForkedWorker(Lane.GENERATE, settings, app, executors, lambda: model_that_cuts.stopping)
    yield child
    await child.close()
    app.close()


@pytest.mark.usefixtures("queued")
async def test_a_worker_whose_tick_ends_while_redis_is_away_goes_on_under_the_lease_that_it_believes(
    cut_off: ForkedWorker, database: Database
) -> None:
    await advance(database)
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued")
async def test_a_worker_whose_tick_ends_while_redis_is_away_ends_with_its_lease(
    cut_off: ForkedWorker, database: Database, redis_url: str
) -> None:
    await advance(database)
    async with Redis.from_url(redis_url) as redis:
        (key,) = [key async for key in redis.scan_iter("mathrag:gpu:*:lease")]
        await redis.persist(key)  # a lease without a time to live cannot be believed
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 1
    assert await scalar(database, FREE) == 2


@pytest.mark.usefixtures("queued")
async def test_a_worker_that_is_told_to_stop_while_redis_is_away_stops(
    cut_off: ForkedWorker, database: Database, model_that_cuts: Cutting
) -> None:
    await advance(database)
    model_that_cuts.stops_worker = True
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 1
    assert await scalar(database, FREE) == 2


@pytest.mark.usefixtures("queued")
async def test_what_a_guard_refused_is_not_believed_while_redis_is_away(
    guard: ChatServer, cable: Proxy, redis_url: str
) -> None:
    async with Redis.from_url(redis_url.replace(f":{urlsplit(redis_url).port}", f":{cable.port}")) as redis:
        guards = Guards(redis, [guard.url])
        held = await guards.read_leases()
        cable.part()
        assert held[DEVICE] is not None
        assert await guards.read_leases() == held
        guard.respond = lambda _: Reply(status=409)
        with pytest.raises(NotGranted):
            [_ async for _ in guards.run(DEVICE, 1, [])]
        assert await guards.read_leases() == {DEVICE: None}
        await guards.close()
