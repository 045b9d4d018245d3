"""Windows: replies that come together are committed together, and none waits for a slow one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.runtime.worker import batch_by_time

pytestmark = pytest.mark.anyio

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
