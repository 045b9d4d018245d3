"""Batch a stream by time, so that replies of a slow model are committed one by one and of a fast one in batches."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def batch_by_time(stream: AsyncIterator[T], seconds: float, limit: int = 64) -> AsyncGenerator[list[T], None]:
    """Yield batches of elements that arrive within `seconds` of the batch's first one, at most `limit` each.

    An error of the stream is raised after the elements before it.
    """
    arrived: asyncio.Queue[T | None] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for element in stream:
                arrived.put_nowait(element)
        finally:
            arrived.put_nowait(None)

    pumping = asyncio.create_task(pump())
    try:
        while (first := await arrived.get()) is not None:
            batch, ended = await _gather(arrived, first, seconds, limit)
            yield batch
            if ended:
                break
        await pumping
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


async def _gather(arrived: "asyncio.Queue[T | None]", first: T, seconds: float, limit: int) -> tuple[list[T], bool]:
    batch = [first]
    try:
        async with asyncio.timeout(seconds):
            while len(batch) < limit:
                element = await arrived.get()
                if element is None:
                    return batch, True
                batch.append(element)
    except TimeoutError:
        pass
    return batch, False
