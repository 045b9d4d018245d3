"""Polls watched objects: each is read once per poll for all clients that watch it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
POLL_S = 1.0
"""Seconds between two reads of a watched object."""


async def _pause() -> None:
    await asyncio.sleep(POLL_S)


class Polls:
    """The polls that are due, by key."""

    def __init__(self, pause: Callable[[], Awaitable[None]] = _pause) -> None:
        self._pause = pause
        self._due: dict[Hashable, asyncio.Task[Any]] = {}

    async def wait_for_next(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return what the next poll of `key` reads; all callers that wait for that poll share its result.

        A poll leaves the list before it reads: a later caller may already have seen newer data than it will find.
        """
        task = self._due.get(key)
        if task is None:
            task = self._due[key] = asyncio.create_task(self._poll(key, read))
            task.add_done_callback(retrieve_exception)
        found: T = await asyncio.shield(task)
        return found

    async def _poll(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        try:
            await self._pause()
        finally:
            del self._due[key]
        return await read()


def retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a shared task, so that asyncio does not warn when all who waited for it are gone."""
    if not task.cancelled():
        task.exception()
