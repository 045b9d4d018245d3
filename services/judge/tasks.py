"""Work that runs side by side and leaves no task behind."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def as_completed(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """Results in the order in which they are ready; close it, and what still runs is cancelled and awaited.

    Raises:
        Whatever one of the coroutines raises; the others are cancelled then.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        for ended in asyncio.as_completed(tasks):
            yield await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
