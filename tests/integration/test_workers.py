import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import pytest
from celery import Celery
from kombu import pools
from kombu.exceptions import OperationalError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mathrag.stack.redis import find_free_port
from shared.calls import Lane
from shared.lease import lease
from shared.lease.lease import GuardClient, Guards, NotGranted, Phase, RedisLease
from shared.queue import COALESCE_S, DRAIN, MAX_QUEUED, Ticker, celery_app
from shared.runtime.process import ForkedWorker, Tools
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Executor, Lapse, Release
from shared.settings import Settings, Workers
from shared.storage.database import Database
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.faults.proxy import Proxy
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    drain,
    furnish,
    model,
    rows,
    run_sql,
    scalar,
    submit_job,
)

# Jobs run to their end on a real database: every call once, every sample once, whatever is asked twice is reused.


pytestmark = pytest.mark.anyio


async def test_a_job_ends_with_every_sample_completed(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert await rows(database, "SELECT kind, state, count(*) FROM samples GROUP BY 1, 2 ORDER BY 1") == [
        ("item", 2, 5),
        ("prepare", 2, 1),
    ]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_every_call_is_executed_once(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    executor = ScriptedExecutor()
    await drain(database, executor)
    assert set(executor.ran.values()) == {1}
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == len(executor.ran)


# Ticks: at most one queued per lane, and a broker whose settings lose nothing but time.

PREFIX = "mathrag:celery:"
TICKS_TICK_S = 60.0


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = celery_app(redis_url, TICKS_TICK_S)
    yield app
    pools.reset()
    app.close()


async def queued_ticks(redis: Redis, lane: Lane) -> int:
    return int(await redis.llen(PREFIX + lane.value))  # type: ignore[misc]


async def test_ticks_coalesce(app: Celery, redis: Redis) -> None:
    tickers = [Ticker(app, redis), Ticker(app, redis)]
    for _ in range(50):
        for ticker in tickers:
            await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 1


async def test_a_tick_that_has_begun_makes_room_for_the_next(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 2  # nobody has taken the first one off the queue in this test


async def test_of_too_many_ticks_few_are_kept(app: Celery, redis: Redis) -> None:
    for lane in Lane:
        await redis.lpush(PREFIX + lane.value, *range(1000))  # type: ignore[misc]
    await Ticker(app, redis).clear_tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == MAX_QUEUED
    assert await queued_ticks(redis, Lane.GENERATE) == 1000


async def test_lanes_have_queues_of_their_own(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    for lane in Lane:
        await ticker.tick(lane)
    assert [await queued_ticks(redis, lane) for lane in Lane] == [1, 1]
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.GENERATE)
    assert await queued_ticks(redis, Lane.GENERATE) == 1


async def test_a_lost_tick_blocks_its_lane_for_a_while_only(app: Celery, redis: Redis) -> None:
    await Ticker(app, redis).tick(Lane.JUDGE)
    (key,) = [key async for key in redis.scan_iter("mathrag:tick:*")]
    assert 0 < await redis.ttl(key) <= COALESCE_S


async def test_a_wiped_redis_is_ticked_anew(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await redis.flushall()
    await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 1


async def test_a_tick_is_json_and_carries_nothing(app: Celery, redis: Redis) -> None:
    await Ticker(app, redis).tick(Lane.JUDGE)
    message = json.loads((await redis.lrange(PREFIX + Lane.JUDGE.value, 0, -1))[0])  # type: ignore[misc]
    assert message["headers"]["task"] == DRAIN
    assert message["content-type"] == "application/json"
    arguments, keywords, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, keywords) == ([], {})


async def test_a_tick_with_redis_down_is_no_error(app: Celery) -> None:
    async with Redis(port=find_free_port(), retry=Retry(NoBackoff(), 0)) as down:
        ticker = Ticker(app, down)
        await ticker.tick(Lane.JUDGE)
        await ticker.clear_tick(Lane.JUDGE)


async def test_a_tick_behind_a_dead_cable_is_no_error(redis_url: str, redis: Redis) -> None:
    url = urlsplit(redis_url)
    with Proxy(url.port or 6379) as proxy:
        app = celery_app(redis_url.replace(f":{url.port}/", f":{proxy.port}/"), TICKS_TICK_S)
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, "socket_timeout": 0.2}
        ticker = Ticker(app, redis)
        await ticker.tick(Lane.JUDGE)
        await ticker.clear_tick(Lane.JUDGE)
        proxy.silence()
        async with asyncio.timeout(60):
            await ticker.tick(Lane.JUDGE)
        pools.reset()
        app.close()
    assert await redis.exists(f"mathrag:tick:{Lane.JUDGE.value}") == 0, "it hides none that comes later"


class BrokenBroker:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.tries = 0

    def send_task(self, name: str, queue: str, headers: dict[str, str]) -> None:
        self.tries += 1
        if self.tries == 1:
            raise OperationalError("broken pipe")
        self.sent.append(queue)


async def test_a_tick_that_could_not_be_sent_does_not_hide_the_next(redis: Redis) -> None:
    broker = BrokenBroker()
    ticker = Ticker(broker, redis)
    await ticker.tick(Lane.JUDGE)
    await ticker.tick(Lane.JUDGE)
    assert broker.sent == ["judge"]


SETTINGS = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "task_acks_on_failure_or_timeout": True,
    "visibility_timeout": 600,
    "worker_prefetch_multiplier": 1,
    "worker_concurrency": 1,
    "worker_pool": "prefork",
    "worker_max_tasks_per_child": None,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "worker_enable_remote_control": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "task_ignore_result": True,
    "result_backend": None,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_queue_max_priority": None,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_celery_is_set_as_the_study_of_its_failures_demands(app: Celery, name: str) -> None:
    assert app.conf[name] == SETTINGS[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("visibility_timeout", 600),
        ("health_check_interval", 10),
        ("socket_keepalive", True),
        ("socket_timeout", 5),
        ("socket_connect_timeout", 5),
        ("retry_on_timeout", True),
    ],
)
def test_the_broker_connection_is_set_too(app: Celery, name: str, value: object) -> None:
    assert app.conf.broker_transport_options[name] == value
    assert app.conf.broker_transport_options["global_keyprefix"]


def test_time_limits_lie_above_a_tick_and_far_below_redelivery(app: Celery) -> None:
    conf = app.conf
    assert TICKS_TICK_S < conf.task_soft_time_limit < conf.task_time_limit < conf.visibility_timeout


def test_publishing_does_not_hang_on_a_dead_broker(app: Celery) -> None:
    assert app.conf.task_publish_retry_policy["max_retries"] <= 3


def test_a_shutdown_lets_a_drain_give_its_calls_back(app: Celery) -> None:
    assert 5 <= app.conf.worker_soft_shutdown_timeout <= 30


# What a worker process does by itself: it learns whose devices its guards own, and goes on while Redis is away.

DEVICE = "cpu:7"
"""Not the default, and no setting of the worker says so."""
ANSWERED = "SELECT count(*) FROM attempts WHERE accepted"
FREE = "SELECT count(*) FROM queue WHERE token IS NULL AND lane = 'generate'"
WORKER_PROCESS_TICK_S = 0.05


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
async def queued_calls(database: Database, redis_url: str) -> None:
    await furnish(database, items=3)
    await run_sql(database, "UPDATE models SET device = :device WHERE needs_lease", device=DEVICE)
    await submit_job(database, "closed-book")
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(1, Phase.OPEN, [await model(database)])


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_works_under_the_lease_of_the_guard_that_it_was_given(
    worker: ForkedWorker, database: Database
) -> None:
    await worker.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_claims_nothing_for_a_device_whose_guard_it_was_not_given(
    worker: ForkedWorker, database: Database, guard: ChatServer
) -> None:
    guard.respond = lambda _: as_json({"device": "cpu:9", "state": "open"})
    await worker.drain_lane()
    assert await scalar(database, ANSWERED) == 0
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL AND not_before IS NULL") == 3


@pytest.mark.usefixtures("queued_calls")
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
        await asyncio.sleep(2 * WORKER_PROCESS_TICK_S)
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
        workers=Workers(tick_s=WORKER_PROCESS_TICK_S, chunk=1, streams=1),
    )
    app = celery_app(url, 60)
    child = ForkedWorker(Lane.GENERATE, settings, app, executors, lambda: model_that_cuts.stopping)
    yield child
    await child.close()
    app.close()


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_whose_tick_ends_while_redis_is_away_goes_on_under_the_lease_that_it_believes(
    cut_off: ForkedWorker, database: Database
) -> None:
    await advance(database)
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued_calls")
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


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_that_is_told_to_stop_while_redis_is_away_stops(
    cut_off: ForkedWorker, database: Database, model_that_cuts: Cutting
) -> None:
    await advance(database)
    model_that_cuts.stops_worker = True
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 1
    assert await scalar(database, FREE) == 2


@pytest.mark.usefixtures("queued_calls")
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
