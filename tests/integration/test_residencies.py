"""Residency rows: one decision wins, what is closed stays closed, epochs only grow."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis
from sqlalchemy.exc import DBAPIError

from shared.lease import residencies
from shared.lease.residencies import ResidencyRow
from shared.storage.database import Database
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio

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
