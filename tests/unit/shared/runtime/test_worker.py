"""The worker's timing: commits that many share, windows of replies, and when it counts as deaf."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from kombu.exceptions import OperationalError
from kombu.utils import functional

from shared.queue import RECONNECT_S, celery_app
from shared.runtime.process import LOOKS, TickWatch
from shared.runtime.queue import GroupCommit
from shared.runtime.worker import batch_by_time

pytestmark = pytest.mark.anyio

# Windows: replies that come together are committed together, and none waits for a slow one.

LONG, SHORT = 3600.0, 0.0


class Stream:
    def __init__(self) -> None:
        self.fed: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    def feed(self, *elements: int | Exception | None) -> None:
        for element in elements:
            self.fed.put_nowait(element)

    async def __aiter__(self) -> AsyncIterator[int]:
        try:
            while (element := await self.fed.get()) is not None:
                if isinstance(element, Exception):
                    raise element
                yield element
        finally:
            self.closed.set()


async def test_what_is_there_at_once_is_one_batch() -> None:
    stream = Stream()
    stream.feed(1, 2, 3, None)
    assert [batch async for batch in batch_by_time(aiter(stream), LONG)] == [[1, 2, 3]]


async def test_an_empty_stream_has_no_batch() -> None:
    stream = Stream()
    stream.feed(None)
    assert [batch async for batch in batch_by_time(aiter(stream), LONG)] == []


async def test_a_batch_does_not_wait_for_what_comes_later() -> None:
    stream = Stream()
    batches = batch_by_time(aiter(stream), SHORT)
    stream.feed(1)
    assert await anext(batches) == [1]
    stream.feed(2)
    assert await anext(batches) == [2]
    stream.feed(None)
    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_the_window_opens_with_the_first_element() -> None:
    stream = Stream()
    batches = batch_by_time(aiter(stream), LONG)
    waiting = asyncio.create_task(anext(batches))
    for _ in range(10):
        await asyncio.sleep(0)
    stream.feed(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    stream.feed(2, None)
    assert await waiting == [1, 2]
    await batches.aclose()  # type: ignore[attr-defined]


async def test_a_full_batch_goes_out_before_its_window_is_over() -> None:
    stream = Stream()
    stream.feed(*range(7), None)
    assert [batch async for batch in batch_by_time(aiter(stream), LONG, limit=3)] == [[0, 1, 2], [3, 4, 5], [6]]


async def test_the_last_batch_may_be_exactly_full() -> None:
    stream = Stream()
    stream.feed(*range(4), None)
    assert [batch async for batch in batch_by_time(aiter(stream), LONG, limit=2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("before", [0, 1, 2, 3])
async def test_an_error_is_raised_after_what_came_before_it(before: int) -> None:
    stream, batches = Stream(), []
    stream.feed(*range(before), ConnectionError("gone"))

    async def read() -> None:
        async for batch in batch_by_time(aiter(stream), LONG, limit=2):
            batches.append(batch)  # noqa: PERF401 - what came before the error is what the test is about

    with pytest.raises(ConnectionError, match="gone"):
        await read()
    assert [element for batch in batches for element in batch] == list(range(before))


async def test_closing_the_batches_closes_the_stream() -> None:
    stream = Stream()
    batches = batch_by_time(aiter(stream), SHORT)
    stream.feed(1)
    await anext(batches)
    await batches.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        await stream.closed.wait()


async def test_cancelling_the_reader_closes_the_stream() -> None:
    stream = Stream()

    async def read() -> None:
        async for _ in batch_by_time(aiter(stream), SHORT):
            pass

    reading = asyncio.create_task(read())
    for _ in range(10):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert stream.closed.is_set()


async def test_a_slow_reader_loses_nothing() -> None:
    stream, read = Stream(), []
    stream.feed(1)
    async for batch in batch_by_time(aiter(stream), SHORT):
        read.extend(batch)
        if len(read) == 1:
            stream.feed(2, 3, 4, None)
            for _ in range(10):
                await asyncio.sleep(0)
    assert read == [1, 2, 3, 4]


# Group commit: one run at a time, for all who came meanwhile.


class Store:
    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.go = asyncio.Semaphore(0)

    async def run(self, items: Sequence[int]) -> list[int]:
        self.runs.append(list(items))
        await self.go.acquire()
        if min(items) < 0:
            raise ValueError(min(items))
        return [2 * item for item in items]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_is_served_at_once_and_those_who_come_meanwhile_together() -> None:
    store = Store()
    together = GroupCommit(store.run)
    tasks = [asyncio.create_task(together.submit(1))]
    await turns()
    tasks += [asyncio.create_task(together.submit(item)) for item in (2, 3)]
    await turns()
    assert store.runs == [[1]]
    store.go.release()
    await turns()
    assert store.runs == [[1], [2, 3]]
    store.go.release()
    assert await asyncio.gather(*tasks) == [2, 4, 6]


async def test_an_error_reaches_all_of_its_run_and_nobody_else() -> None:
    store = Store()
    together = GroupCommit(store.run)
    first = asyncio.create_task(together.submit(1))
    await turns()
    failing = [asyncio.create_task(together.submit(item)) for item in (-1, 2)]
    await turns()
    store.go.release()
    await turns()
    last = asyncio.create_task(together.submit(3))
    await turns()
    store.go.release()
    store.go.release()
    assert await first == 2
    assert [type(error) for error in await asyncio.gather(*failing, return_exceptions=True)] == [ValueError] * 2
    assert await last == 6


async def test_a_caller_that_goes_away_stops_nothing() -> None:
    store = Store()
    together = GroupCommit(store.run)
    gone, stays = (asyncio.create_task(together.submit(item)) for item in (1, 2))
    await turns()
    gone.cancel()
    await turns()
    store.go.release()
    assert await stays == 4
    assert store.runs == [[1, 2]]


# When a worker counts as deaf: ticks wait, it has nothing to do, and it takes none, look after look.

BUSY, IDLE = True, False


def test_a_worker_that_takes_no_tick_is_deaf_after_some_looks() -> None:
    watch = TickWatch()
    assert [watch.is_stuck(1, busy=IDLE) for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]


@pytest.mark.parametrize(("waiting", "busy"), [(0, IDLE), (5, BUSY), (0, BUSY)])
def test_a_worker_without_ticks_or_with_work_is_not_deaf(waiting: int, busy: bool) -> None:
    watch = TickWatch()
    assert not any(watch.is_stuck(waiting, busy=busy) for _ in range(10 * LOOKS))


def test_a_tick_that_came_between_two_looks_begins_the_count_anew() -> None:
    watch = TickWatch()
    for _ in range(10):
        assert not any(watch.is_stuck(100, busy=IDLE) for _ in range(LOOKS - 1))
        watch.note_tick(request="of Celery's signal")
    assert not watch.is_stuck(100, busy=IDLE)


def test_a_moment_of_work_begins_the_count_anew() -> None:
    watch = TickWatch()
    for busy in (IDLE, IDLE, BUSY, IDLE, IDLE):
        assert not watch.is_stuck(1, busy=busy)
    assert watch.is_stuck(1, busy=IDLE)


# The connection to the broker is tried again at a steady pace, however long the broker was away.


def test_the_pause_between_two_tries_to_connect_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "sleep", lambda _seconds: None)
    pauses: list[float] = []
    connection = celery_app("redis://127.0.0.1:1", 60.0).connection_for_read()
    with pytest.raises(OperationalError):
        connection.ensure_connection(lambda _error, pause: pauses.append(pause), max_retries=20)
    assert len(pauses) == 20
    assert max(pauses) == RECONNECT_S
