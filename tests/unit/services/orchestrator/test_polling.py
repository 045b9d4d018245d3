"""Whoever watches a job: how watchers share its polls, and what each is told."""

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mathrag.errors import BadRequest
from services.orchestrator.api.jobs import StreamPosition, list_messages, parse_event_id
from services.orchestrator.polling import Polls
from shared.params import Params
from shared.storage.jobs import Gate, Job, JobSnapshot, JobStateChange, StageCount, count_requests

pytestmark = pytest.mark.anyio

# How those who watch a job share its polls.


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


# What a watcher of a job is told.

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
GATE = Gate(strategy="judge", reason="", tau=0.45, rho=0.1, low=0.0, high=0.2, pairs=5, asked=5, unparsed=0)


def picture(*states: str, done: int = 0, gate: Gate | None = None) -> JobSnapshot:
    job = Job(
        id=uuid.UUID(int=7), name="first", state=states[-1], pipeline="dense", dataset="d", corpus=None, repeats=1,
        reuse="all", request_counts=count_requests(states[-1], 10, done, 0, 0, 0), params=Params(), rank=100,
        metadata={},
        version=len(states), created_at=NOW, running_at=None, ended_at=None, reached={}, eta_seconds=None,
        requeued_from=None, reason=None, chain=None, gate=gate, stages={"generate": StageCount(done=done, total=10)},
    )  # fmt: skip
    changes = [JobStateChange(version=n + 1, state=state, reason=None, at=NOW) for n, state in enumerate(states)]
    return JobSnapshot(row=7, job=job, changes=changes)


def told(found: JobSnapshot, seen: StreamPosition) -> list[tuple[str, Any]]:
    words = {"state": "state", "gate": "strategy", "progress": "request_counts"}
    events = [told.event for told in list_messages(found, seen)]
    return [(str(e.event), msgspec.json.decode(str(e.raw_data))[words[str(e.event)]]) for e in events]


def seen_all(found: JobSnapshot, seen: StreamPosition = StreamPosition()) -> StreamPosition:  # noqa: B008 - immutable
    return [seen, *(told.seen for told in list_messages(found, seen))][-1]


def test_a_new_watcher_is_told_everything_in_order() -> None:
    events = told(picture("preparing", "running", gate=GATE), StreamPosition())
    assert [event for event, _ in events] == ["state", "state", "gate", "progress"]
    assert [word for event, word in events if event == "state"] == ["preparing", "running"]


def test_the_end_comes_last() -> None:
    events = told(picture("preparing", "running", "completed", "completed", done=10), StreamPosition())
    assert [event for event, _ in events] == ["state", "state", "progress", "state", "state"]
    assert events[-1] == ("state", "completed")


def test_nothing_new_is_nothing_said() -> None:
    found = picture("preparing", "running", done=3, gate=GATE)
    assert told(found, seen_all(found)) == []


def test_progress_is_told_when_counts_change() -> None:
    seen = seen_all(picture("preparing", "running", done=3))
    ((event, request_counts),) = told(picture("preparing", "running", done=4), seen)
    assert (event, request_counts["completed"]) == ("progress", 4)


def test_a_client_goes_on_exactly_after_any_event() -> None:
    found = picture("preparing", "running", "paused", "running", "completed", done=10, gate=GATE)
    whole = list(list_messages(found, StreamPosition()))
    for number, one in enumerate(whole):
        rest = list_messages(found, parse_event_id(one.event.id))
        assert [after.event.id for after in rest] == [after.event.id for after in whole[number + 1 :]]


@pytest.mark.parametrize(
    "header", ["", "x", "1", "1.0", "1.2.-", "1.0.xyz", "-1.0.-", "1.0.-\n", "9999999999.0.-", "1.0.0123456789ABCDEF"]
)
def test_an_id_that_is_not_ours_is_refused(header: str) -> None:
    with pytest.raises(BadRequest, match="Last-Event-ID"):
        parse_event_id(header)
