"""Ticks: at most one queued per lane, and a broker whose settings lose nothing but time."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
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
from shared.queue import COALESCE_S, DRAIN, MAX_QUEUED, Ticker, celery_app
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.anyio

PREFIX = "mathrag:celery:"
TICK_S = 60.0


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = celery_app(redis_url, TICK_S)
    yield app
    pools.reset()
    app.close()


async def queued(redis: Redis, lane: Lane) -> int:
    return int(await redis.llen(PREFIX + lane.value))  # type: ignore[misc]


async def test_ticks_coalesce(app: Celery, redis: Redis) -> None:
    tickers = [Ticker(app, redis), Ticker(app, redis)]
    for _ in range(50):
        for ticker in tickers:
            await ticker.tick(Lane.JUDGE)
    assert await queued(redis, Lane.JUDGE) == 1


async def test_a_tick_that_has_begun_makes_room_for_the_next(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.JUDGE)
    assert await queued(redis, Lane.JUDGE) == 2  # nobody has taken the first one off the queue in this test


async def test_of_too_many_ticks_few_are_kept(app: Celery, redis: Redis) -> None:
    for lane in Lane:
        await redis.lpush(PREFIX + lane.value, *range(1000))  # type: ignore[misc]
    await Ticker(app, redis).clear_tick(Lane.JUDGE)
    assert await queued(redis, Lane.JUDGE) == MAX_QUEUED
    assert await queued(redis, Lane.GENERATE) == 1000


async def test_lanes_have_queues_of_their_own(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    for lane in Lane:
        await ticker.tick(lane)
    assert [await queued(redis, lane) for lane in Lane] == [1, 1]
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.GENERATE)
    assert await queued(redis, Lane.GENERATE) == 1


async def test_a_lost_tick_blocks_its_lane_for_a_while_only(app: Celery, redis: Redis) -> None:
    await Ticker(app, redis).tick(Lane.JUDGE)
    (key,) = [key async for key in redis.scan_iter("mathrag:tick:*")]
    assert 0 < await redis.ttl(key) <= COALESCE_S


async def test_a_wiped_redis_is_ticked_anew(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await redis.flushall()
    await ticker.tick(Lane.JUDGE)
    assert await queued(redis, Lane.JUDGE) == 1


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
        app = celery_app(redis_url.replace(f":{url.port}/", f":{proxy.port}/"), TICK_S)
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
    assert TICK_S < conf.task_soft_time_limit < conf.task_time_limit < conf.visibility_timeout


def test_publishing_does_not_hang_on_a_dead_broker(app: Celery) -> None:
    assert app.conf.task_publish_retry_policy["max_retries"] <= 3


def test_a_shutdown_lets_a_drain_give_its_calls_back(app: Celery) -> None:
    assert 5 <= app.conf.worker_soft_shutdown_timeout <= 30
