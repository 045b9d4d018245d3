"""Looks at a server that others can change, shared by all replies that wait for one."""

import asyncio
import math
from collections.abc import Awaitable, Callable

INTERVAL_S = 1.0
"""Between the beginnings of two looks, at least."""


class Confirmation:
    """Whether a server still serves what was verified; `look` asks it once, and raises nothing."""

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._look = look
        self._lock = asyncio.Lock()
        self._begun = 0
        """How many looks have begun."""
        self._began_at = -math.inf
        self._found: bool | None = None
        """What the last look found; None while it goes on, and where it was cancelled."""

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
        await asyncio.sleep(max(0.0, self._began_at + INTERVAL_S - now()))
        self._begun += 1
        self._began_at, self._found = now(), None
        return await self._look()
