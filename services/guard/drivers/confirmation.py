"""Checks of a server that others can change; all replies that wait for a check share it."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

INTERVAL_S = 1.0
"""Between the starts of two checks while calls run, so that checks do not burden a busy server."""
IDLE_INTERVAL_S = 0.1
"""Between the starts of two checks while no call runs: then finished replies wait for nothing but the check."""


class Confirmation:
    """Rate-limited checks whether a server still serves what was verified; `look` checks once and raises nothing."""

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._run_check = look
        self._lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._begun_checks = 0
        """Number of checks that have begun."""
        self._began_at = -math.inf
        self._found: bool | None = None
        """Result of the last check; None while it runs, and if it was cancelled."""

    @contextmanager
    def track_call(self) -> Iterator[None]:
        """Count a call to the server as running inside the block."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def check(self) -> bool:
        """Return the result of a check that begins after this call, so that it sees every change before the call.

        Concurrent callers share one check.
        """
        begun_before = self._begun_checks
        async with self._lock:
            if self._found is None or self._begun_checks == begun_before:
                self._found = await self._begin()
            return self._found

    async def _begin(self) -> bool:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._began_at + IDLE_INTERVAL_S - now()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), max(0.0, self._began_at + INTERVAL_S - now()))
        self._begun_checks += 1
        self._began_at, self._found = now(), None
        return await self._run_check()
