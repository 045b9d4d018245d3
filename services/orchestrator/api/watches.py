"""Jobs that somebody watches: however many do, each is read once per poll, and no connection is held in between."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.storage import events
from shared.storage.database import Database

POLL_S = 1.0
"""Between two looks at a job that is watched."""


async def _pause() -> None:
    await asyncio.sleep(POLL_S)


class Watches:
    """The polls that are due, by job."""

    def __init__(self, pause: Callable[[], Awaitable[None]] = _pause) -> None:
        self._pause = pause
        self._due: dict[int, asyncio.Task[events.Picture]] = {}

    async def following(self, database: Database, job: int) -> events.Picture:
        """The job as the next poll finds it; whoever waits for that at the same time shares it.

        A poll is taken out of the list before it reads: who comes later may have seen more than it will find.
        """
        task = self._due.get(job)
        if task is None:
            task = self._due[job] = asyncio.create_task(self._poll(database, job))
            task.add_done_callback(_noticed)
        return await asyncio.shield(task)

    async def _poll(self, database: Database, job: int) -> events.Picture:
        try:
            await self._pause()
        finally:
            del self._due[job]
        return await events.look(database, job)


def _noticed(task: "asyncio.Task[events.Picture]") -> None:
    """An error is for those who still watch; where nobody does, it is nobody's."""
    if not task.cancelled():
        task.exception()
