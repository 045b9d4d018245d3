"""Looks at a server that others can change, shared by all replies that wait for one."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

INTERVAL_S = 1.0
"""From the beginning of one look to that of the next while calls run, so that a look costs a busy server nothing."""
IDLE_INTERVAL_S = 0.1
"""The same once no call runs: then the server waits for the replies that wait for the look."""


class Confirmation:
    """Whether a server still serves what was verified; `look` asks it once, and raises nothing."""

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._look = look
        self._lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._begun = 0
        """How many looks have begun."""
        self._began_at = -math.inf
        self._found: bool | None = None
        """What the last look found; None while it goes on, and where it was cancelled."""

    @contextmanager
    def call(self) -> Iterator[None]:
        """For the time of a call to the server."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def next(self) -> bool:
        """What a look finds that begins after this call: it sees every change that a reply may have come from.

        All who wait for one look share it.
        """
        begun_before = self._begun
        async with self._lock:
            if self._found is None or self._begun == begun_before:
                self._found = await self._begin()
            return self._found

    async def _begin(self) -> bool:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._began_at + IDLE_INTERVAL_S - now()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), max(0.0, self._began_at + INTERVAL_S - now()))
        self._begun += 1
        self._began_at, self._found = now(), None
        return await self._look()
