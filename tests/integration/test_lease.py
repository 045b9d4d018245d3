import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from mathrag_gate.stack.redis import find_free_port
from shared.lease import lease as lease_module
from shared.lease import residencies
from shared.lease.lease import RENEW_S, TTL_S, DeviceLease, Phase, RedisLease
from shared.lease.residencies import ResidencyRow
from shared.storage.database import Database
from tests.faults.proxy import Proxy
from tests.integration.scene import rows

# The lease in a real Redis: its epoch only grows, and nothing depends on Redis remembering it.


pytestmark = pytest.mark.anyio

KEY = "mathrag:gpu:{cpu:0}:lease"


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


# Residency rows: one decision wins, what is closed stays closed, epochs only grow.

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def want(
    database: Database, previous: int, *models: int, device: str = "cpu:0", cause: str = "test"
) -> int | None:
    async with database.transaction() as connection:
        return await residencies.insert_wanted(connection, device, previous, models, cause)


async def wanted(database: Database, previous: int, *models: int) -> int:
    epoch = await want(database, previous, *models)
    assert epoch is not None
    return epoch


async def move(database: Database, epoch: int, state: str, at: datetime = NOON, reason: str | None = None) -> None:
    async with database.transaction() as connection:
        await residencies.set_state(connection, epoch, state, at, reason)


async def newest(database: Database, device: str = "cpu:0") -> ResidencyRow | None:
    async with database.transaction() as connection:
        return await residencies.find_newest(connection, device)


async def test_the_first_decision_of_a_device_has_no_predecessor(database: Database) -> None:
    assert await newest(database) is None
    epoch = await wanted(database, 0, 7, 3)
    found = await newest(database)
    assert found is not None
    assert (found.epoch, found.previous_epoch, found.models, found.cause, found.state) == (
        epoch,
        0,
        (3, 7),
        "test",
        "wanted",
    )
    assert (found.opened_at, found.closed_at, found.reason, found.servers) == (None, None, None, [])


async def test_of_two_decisions_on_the_same_picture_one_wins(database: Database) -> None:
    first = await wanted(database, 0, 1)
    epochs = await asyncio.gather(*(want(database, first, model) for model in range(1, 6)))
    (won,) = [epoch for epoch in epochs if epoch is not None]
    assert won > first
    assert await rows(database, "SELECT count(*) FROM residencies WHERE previous_epoch = :e", e=first) == [(1,)]


async def test_a_decision_waits_for_one_that_is_being_written(database: Database) -> None:
    for commits in (True, False):
        held = await newest(database)
        previous = held.epoch if held else 0
        async with database.engine.connect() as other:
            assert await residencies.insert_wanted(other, "cpu:0", previous, [1], "other") is not None
            late = asyncio.create_task(want(database, previous, 2, cause="late"))
            await asyncio.sleep(0)
            await (other.commit() if commits else other.rollback())
        assert (await late is None) is commits


async def test_a_decision_on_an_old_picture_loses(database: Database) -> None:
    first = await wanted(database, 0, 1)
    await wanted(database, first, 2)
    assert await want(database, first, 1) is None
    assert await want(database, 0, 1) is None


async def test_devices_decide_independently(database: Database) -> None:
    first, other = await wanted(database, 0, 1), await want(database, 0, 1, device="cpu:1")
    assert other is not None
    assert other != first
    found = await newest(database, "cpu:1")
    assert found is not None
    assert found.epoch == other


async def test_epochs_grow_after_a_redis_wipe_and_after_a_rollback(database: Database, redis_url: str) -> None:
    first = await wanted(database, 0, 1)
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    second = await wanted(database, first, 2)
    assert second > first
    async with database.engine.connect() as connection:
        lost = await residencies.insert_wanted(connection, "cpu:0", second, [3], "test")
        await connection.rollback()
    assert lost is not None
    assert await wanted(database, second, 3) > lost > second


@pytest.mark.parametrize("end", ["closed", "quarantined"])
async def test_a_residency_that_has_ended_stays_as_it_ended(database: Database, end: str) -> None:
    epoch = await wanted(database, 0, 1)
    await move(database, epoch, "open", NOON)
    await move(database, epoch, end, NOON + timedelta(hours=1), "the first reason")
    for state in ("draining", "unloading", "loading", "open", "closed", "quarantined"):
        await move(database, epoch, state, NOON + timedelta(hours=2), "a later reason")
    found = await newest(database)
    assert found is not None
    assert (found.state, found.reason) == (end, "the first reason")
    assert (found.opened_at, found.closed_at) == (NOON, NOON + timedelta(hours=1))


async def test_times_are_of_opening_and_of_the_end(database: Database) -> None:
    epoch = await wanted(database, 0, 1)
    for n, state in enumerate(("unloading", "loading", "open", "draining")):
        await move(database, epoch, state, NOON + timedelta(minutes=n))
    found = await newest(database)
    assert found is not None
    assert (found.state, found.opened_at, found.closed_at) == ("draining", NOON + timedelta(minutes=2), None)


async def test_a_reason_stays_until_another_is_given(database: Database) -> None:
    epoch = await wanted(database, 0, 1)
    await move(database, epoch, "draining", reason="why")
    await move(database, epoch, "loading")
    found = await newest(database)
    assert found is not None
    assert found.reason == "why"


async def test_a_state_that_does_not_exist_is_refused(database: Database) -> None:
    epoch = await wanted(database, 0, 1)
    with pytest.raises(DBAPIError):
        await move(database, epoch, "half_open")


async def test_what_a_dead_guard_left_is_found(database: Database) -> None:
    states = ["closed", "open", "quarantined", "draining", "unloading", "loading", "wanted"]
    epochs = [0]
    for state in states:
        epochs.append(await wanted(database, epochs[-1], 1))
        if state != "wanted":
            await move(database, epochs[-1], state)
    async with database.transaction() as connection:
        left = await residencies.find_unclosed(connection, "cpu:0")
        assert await residencies.find_unclosed(connection, "cpu:1") == []
    assert [each.epoch for each in left] == [epochs[2], epochs[4], epochs[5], epochs[6]]


async def test_servers_and_measurements_are_added_up(database: Database) -> None:
    epoch = await wanted(database, 0, 1)
    async with database.transaction() as connection:
        for pid in (10, 20):
            await residencies.record_server(connection, epoch, {"model": 1, "pid": pid})
        await residencies.record_figures(connection, epoch, {"memory_mib": {"1": 5.5}})
        await residencies.record_figures(connection, epoch, {"load_s": 2})
    found = await newest(database)
    assert found is not None
    assert [server["pid"] for server in found.servers] == [10, 20]
    assert await rows(database, "SELECT measured FROM residencies") == [({"memory_mib": {"1": 5.5}, "load_s": 2},)]
