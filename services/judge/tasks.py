"""Run coroutines concurrently without leaving a task behind."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def as_completed(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """Yield results in the order in which they are ready; closing it cancels and awaits the rest.

    An exception of a coroutine is raised, and the others are cancelled.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        for ended in asyncio.as_completed(tasks):
            yield await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
