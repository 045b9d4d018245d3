"""The lease in a real Redis: its epoch only grows, and nothing depends on Redis remembering it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from mathrag.stack.redis import find_free_port
from shared.lease import lease as lease_module
from shared.lease.lease import RENEW_S, TTL_S, DeviceLease, Phase, RedisLease
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.anyio

KEY = "mathrag:gpu:{cpu:0}:lease"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def lease(redis: Redis) -> RedisLease:
    return RedisLease(redis, "cpu:0")


@pytest.fixture
async def unreachable() -> AsyncIterator[RedisLease]:
    async with Redis(port=find_free_port(), retry=Retry(NoBackoff(), 0)) as client:
        yield RedisLease(client, "cpu:0")


async def test_what_is_published_is_read(lease: RedisLease) -> None:
    assert await lease.read() is None
    assert await lease.publish(3, Phase.OPEN, (5, 17))
    assert await lease.read() == DeviceLease(epoch=3, phase=Phase.OPEN, models=(5, 17))
    assert await lease.publish(4, Phase.DRAINING)
    assert await lease.read() == DeviceLease(epoch=4, phase=Phase.DRAINING, models=())


async def test_an_epoch_never_goes_back(lease: RedisLease) -> None:
    await lease.publish(9, Phase.OPEN, (1,))
    await lease.publish(10, Phase.OPEN, (2,))
    assert not await lease.publish(9, Phase.OPEN, (1,))
    assert await lease.read() == DeviceLease(epoch=10, phase=Phase.OPEN, models=(2,))


async def test_of_writers_at_once_the_newest_epoch_stays(lease: RedisLease) -> None:
    epochs = list(range(1, 60))
    Random(1).shuffle(epochs)  # noqa: S311 - an order, not a secret
    await asyncio.gather(*(lease.publish(epoch, Phase.OPEN, (epoch,)) for epoch in epochs))
    assert await lease.read() == DeviceLease(epoch=59, phase=Phase.OPEN, models=(59,))


async def test_within_an_epoch_the_phase_does_not_go_back(lease: RedisLease) -> None:
    await lease.publish(5, Phase.LOADING)
    await lease.publish(5, Phase.OPEN, (1,))
    await lease.publish(5, Phase.DRAINING)
    assert await lease.read() == DeviceLease(epoch=5, phase=Phase.OPEN, models=(1,))


async def test_a_lease_ends_by_itself_unless_it_is_renewed(lease: RedisLease, redis: Redis) -> None:
    await lease.publish(3, Phase.OPEN, (1,))
    await redis.expire(KEY, 1)
    assert await lease.publish(3, Phase.OPEN, (1,))
    assert TTL_S - 2 <= await redis.ttl(KEY) <= TTL_S
    assert RENEW_S * 3 <= TTL_S


async def test_a_script_flush_is_survived(lease: RedisLease, redis: Redis) -> None:
    await lease.publish(3, Phase.OPEN, (1,))
    await redis.script_flush()
    assert await lease.publish(4, Phase.OPEN, (2,))
    assert not await lease.publish(3, Phase.OPEN, (1,))


async def test_a_wiped_redis_takes_the_same_epoch_again(lease: RedisLease, redis: Redis) -> None:
    await lease.publish(3, Phase.OPEN, (1,))
    await redis.flushall()
    assert await lease.read() is None
    assert await lease.publish(3, Phase.OPEN, (1,))
    assert await lease.read() == DeviceLease(epoch=3, phase=Phase.OPEN, models=(1,))


async def test_a_reader_with_redis_down_has_no_lease(unreachable: RedisLease) -> None:
    assert await unreachable.read() is None


@pytest.fixture
def cable(redis_url: str) -> Iterator[Proxy]:
    port = urlsplit(redis_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
async def reader(cable: Proxy, redis_url: str) -> AsyncIterator[RedisLease]:
    url = redis_url.replace(f":{urlsplit(redis_url).port}", f":{cable.port}")
    async with Redis.from_url(url) as client:
        yield RedisLease(client, "cpu:0")


async def test_a_lease_that_was_read_is_believed_without_redis_for_the_rest_of_its_life(
    lease: RedisLease, reader: RedisLease, cable: Proxy, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=lambda: now))
    await lease.publish(3, Phase.OPEN, (5,))
    await redis.expire(KEY, 9)
    held = await reader.read()
    cable.part()
    assert await reader.read() == held == DeviceLease(epoch=3, phase=Phase.OPEN, models=(5,))
    now += 8
    assert await reader.read() == held
    now += 1
    assert await reader.read() is None


async def test_what_redis_says_replaces_what_was_believed(
    lease: RedisLease, reader: RedisLease, cable: Proxy, redis: Redis
) -> None:
    await lease.publish(3, Phase.OPEN, (5,))
    assert await reader.read() is not None
    await redis.delete(KEY)
    assert await reader.read() is None
    cable.part()
    assert await reader.read() is None


async def test_a_lease_that_the_guard_refused_is_not_believed_without_redis(
    lease: RedisLease, reader: RedisLease, cable: Proxy
) -> None:
    await lease.publish(3, Phase.OPEN, (5,))
    assert await reader.read() is not None
    cable.part()
    reader.forget()
    assert await reader.read() is None


async def test_a_writer_with_redis_down_is_told(unreachable: RedisLease) -> None:
    with pytest.raises(RedisError):
        await unreachable.publish(1, Phase.OPEN)


async def test_devices_have_leases_of_their_own(lease: RedisLease, redis: Redis) -> None:
    other = RedisLease(redis, "GPU-0f")
    await lease.publish(9, Phase.OPEN, (1,))
    assert await other.publish(2, Phase.OPEN, (2,))
    assert (await other.read(), (await lease.read() or DeviceLease(epoch=0, phase=Phase.OPEN, models=())).epoch) == (
        DeviceLease(epoch=2, phase=Phase.OPEN, models=(2,)),
        9,
    )


@pytest.mark.parametrize("phase", Phase)
def test_only_an_open_lease_grants_and_only_its_own_models(phase: Phase) -> None:
    lease = DeviceLease(epoch=1, phase=phase, models=(1, 2))
    assert lease.grants(2) is (phase is Phase.OPEN)
    assert not lease.grants(3)


async def test_the_lease_is_a_hash_under_the_devices_key(lease: RedisLease, redis: Redis) -> None:
    await lease.publish(3, Phase.OPEN, (5, 17))
    assert await redis.hgetall(KEY) == {b"epoch": b"3", b"phase": b"open", b"models": b"5,17", b"step": b"2"}
