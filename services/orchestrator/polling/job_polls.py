"""Polls of watched jobs: each job is read once per poll for all who watch it, and no connection is held in between."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.storage import events
from shared.storage.database import Database

POLL_S = 1.0
"""Between two reads of a job that is watched."""


async def _pause() -> None:
    await asyncio.sleep(POLL_S)


class JobPolls:
    """The polls that are due, by job."""

    def __init__(self, pause: Callable[[], Awaitable[None]] = _pause) -> None:
        self._pause = pause
        self._due: dict[int, asyncio.Task[events.Picture]] = {}

    async def following(self, database: Database, job: int) -> events.Picture:
        """The job as the next poll finds it; all who wait for that poll share its result.

        A poll is taken out of the list before it reads: who comes later may have seen more than it will find.
        """
        task = self._due.get(job)
        if task is None:
            task = self._due[job] = asyncio.create_task(self._poll(database, job))
            task.add_done_callback(retrieve_exception)
        return await asyncio.shield(task)

    async def _poll(self, database: Database, job: int) -> events.Picture:
        try:
            await self._pause()
        finally:
            del self._due[job]
        return await events.look(database, job)


def retrieve_exception(task: "asyncio.Task[object]") -> None:
    """Retrieve the exception of a shared task, so that asyncio does not warn when all who waited for it are gone."""
    if not task.cancelled():
        task.exception()
