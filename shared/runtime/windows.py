"""Group what a stream yields by time, so that a slow model commits each reply alone and a fast one in batches."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def windows(stream: AsyncIterator[T], seconds: float, limit: int = 64) -> AsyncGenerator[list[T], None]:
    """Batches of what arrives within `seconds` of the first; its error is raised after what came before."""
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
