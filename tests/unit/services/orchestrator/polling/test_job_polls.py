"""How those who watch a job share its polls."""

import asyncio

import pytest

from services.orchestrator.polling.job_polls import JobPolls
from shared.storage import events


class Clock:
    """Pauses that end when the test says so."""

    def __init__(self) -> None:
        self.waiting = 0
        self._go = asyncio.Event()

    async def pause(self) -> None:
        """Until `tick`."""
        self.waiting += 1
        await self._go.wait()

    def tick(self) -> None:
        """End all pauses."""
        self._go.set()
        self._go = asyncio.Event()


class Polls:
    """A database that is asked for nothing but pictures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.fails: Exception | None = None
        monkeypatch.setattr(events, "look", self.look)

    async def look(self, _database: object, _job: int) -> int:
        """The number of this poll."""
        self.begun += 1
        number = self.begun
        await self.hold.wait()
        if self.fails:
            raise self.fails
        return number


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_many_watchers_of_a_job_share_its_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred watchers, one read; another job has its own."""
    clock, polls = Clock(), Polls(monkeypatch)
    job_polls = JobPolls(clock.pause)
    watching = [asyncio.create_task(job_polls.following(None, 1)) for _ in range(100)]  # type: ignore[arg-type]
    other = asyncio.create_task(job_polls.following(None, 2))  # type: ignore[arg-type]
    await settle()
    assert (clock.waiting, polls.begun) == (2, 0)
    clock.tick()
    assert set(await asyncio.gather(*watching)) == {1}
    assert (await other, polls.begun) == (2, 2)


@pytest.mark.anyio
async def test_who_comes_during_a_read_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """He may have seen more than the read that is under way will find."""
    clock, polls = Clock(), Polls(monkeypatch)
    job_polls = JobPolls(clock.pause)
    first = asyncio.create_task(job_polls.following(None, 1))  # type: ignore[arg-type]
    await settle()
    polls.hold.clear()
    clock.tick()
    await settle()
    second = asyncio.create_task(job_polls.following(None, 1))  # type: ignore[arg-type]
    await settle()
    polls.hold.set()
    assert await first == 1
    clock.tick()
    assert await second == 2


@pytest.mark.anyio
async def test_a_watcher_that_goes_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when all have gone, no poll follows."""
    clock, polls = Clock(), Polls(monkeypatch)
    job_polls = JobPolls(clock.pause)
    gone, stays = (asyncio.create_task(job_polls.following(None, 1)) for _ in range(2))  # type: ignore[arg-type]
    await settle()
    gone.cancel()
    await settle()
    clock.tick()
    assert await stays == 1
    await settle()
    assert (clock.waiting, polls.begun) == (1, 1)


@pytest.mark.anyio
async def test_a_poll_that_fails_ends_the_streams_and_the_next_one_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was away: clients come back with their last id."""
    clock, polls = Clock(), Polls(monkeypatch)
    job_polls = JobPolls(clock.pause)
    polls.fails = OSError("away")
    failing = asyncio.create_task(job_polls.following(None, 1))  # type: ignore[arg-type]
    await settle()
    clock.tick()
    with pytest.raises(OSError, match="away"):
        await failing
    polls.fails = None
    following = asyncio.create_task(job_polls.following(None, 1))  # type: ignore[arg-type]
    await settle()
    clock.tick()
    assert await following == 2
