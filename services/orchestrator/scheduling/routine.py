"""A task that the orchestrator repeats through every outage, and at once when it is woken."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod

OUTAGE_S = 1.0
"""Seconds to wait after a failure, however long the outage lasts: a longer pause would outlast it."""

_log = logging.getLogger(__name__)


class Routine(ABC):
    """Repeats a task until the orchestrator stops; `wake` shortens the pause."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._completed_at = time.monotonic()

    @abstractmethod
    async def run_once(self) -> float:
        """Do the task once, and return the seconds to wait before the next time."""

    def wake(self) -> None:
        """End the pause, because a job was submitted or ended."""
        self._woken.set()

    @property
    def silent_s(self) -> float:
        """Return the seconds since the task last succeeded, or since it was created."""
        return time.monotonic() - self._completed_at

    async def run(self) -> None:
        """Repeat the task until cancelled."""
        while True:
            self._woken.clear()
            try:
                pause_s = await self.run_once()
                self._completed_at = time.monotonic()
            except Exception:  # noqa: BLE001 - the routine must outlive every outage
                _log.exception("%s failed; trying again", type(self).__name__.lower())
                pause_s = OUTAGE_S
            _raise_lost_cancellation()
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return


def _raise_lost_cancellation() -> None:
    """Raise a cancellation that `asyncio.wait_for`, by which redis-py sends, may swallow before Python 3.12."""
    own = asyncio.current_task()
    if own is not None and own.cancelling():
        raise asyncio.CancelledError
