"""How those who watch a job share its polls."""

import asyncio

import pytest

from services.orchestrator.polling import Polls


class Clock:
    def __init__(self) -> None:
        self.waiting = 0
        self._go = asyncio.Event()

    async def pause(self) -> None:
        self.waiting += 1
        await self._go.wait()

    def tick(self) -> None:
        self._go.set()
        self._go = asyncio.Event()


class Reader:
    def __init__(self) -> None:
        self.clear_tick = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.fails: Exception | None = None

    async def read(self) -> int:
        self.clear_tick += 1
        number = self.clear_tick
        await self.hold.wait()
        if self.fails:
            raise self.fails
        return number


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_many_watchers_of_a_job_share_its_polls() -> None:
    clock, reader = Clock(), Reader()
    polls = Polls(clock.pause)
    watching = [asyncio.create_task(polls.wait_for_next(1, reader.read)) for _ in range(100)]
    other = asyncio.create_task(polls.wait_for_next(2, reader.read))
    await settle()
    assert (clock.waiting, reader.clear_tick) == (2, 0)
    clock.tick()
    assert set(await asyncio.gather(*watching)) == {1}
    assert (await other, reader.clear_tick) == (2, 2)


@pytest.mark.anyio
async def test_who_comes_during_a_read_waits_for_the_next_one() -> None:
    clock, reader = Clock(), Reader()
    polls = Polls(clock.pause)
    first = asyncio.create_task(polls.wait_for_next(1, reader.read))
    await settle()
    reader.hold.clear()
    clock.tick()
    await settle()
    second = asyncio.create_task(polls.wait_for_next(1, reader.read))
    await settle()
    reader.hold.set()
    assert await first == 1
    clock.tick()
    assert await second == 2


@pytest.mark.anyio
async def test_a_watcher_that_goes_takes_nothing_from_the_others() -> None:
    clock, reader = Clock(), Reader()
    polls = Polls(clock.pause)
    gone, stays = (asyncio.create_task(polls.wait_for_next(1, reader.read)) for _ in range(2))
    await settle()
    gone.cancel()
    await settle()
    clock.tick()
    assert await stays == 1
    await settle()
    assert (clock.waiting, reader.clear_tick) == (1, 1)


@pytest.mark.anyio
async def test_a_poll_that_fails_ends_the_streams_and_the_next_one_is_fresh() -> None:
    clock, reader = Clock(), Reader()
    polls = Polls(clock.pause)
    reader.fails = OSError("away")
    failing = asyncio.create_task(polls.wait_for_next(1, reader.read))
    await settle()
    clock.tick()
    with pytest.raises(OSError, match="away"):
        await failing
    reader.fails = None
    following = asyncio.create_task(polls.wait_for_next(1, reader.read))
    await settle()
    clock.tick()
    assert await following == 2
