"""What the orchestrator does over and over: through every outage, and at once when it is woken."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod

OUTAGE_S = 1.0
"""Pause after a failure, however long the outage lasts: a longer one would go on after the outage."""

_log = logging.getLogger(__name__)


class Routine(ABC):
    """One task of the orchestrator."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._completed_at = time.monotonic()

    @abstractmethod
    async def once(self) -> float:
        """Do it once; returns the seconds to pause before the next time."""

    def wake(self) -> None:
        """End the pause: a job came or went."""
        self._woken.set()

    @property
    def silent_s(self) -> float:
        """Seconds since it was last done without an error, or since it was made."""
        return time.monotonic() - self._completed_at

    async def run(self) -> None:
        """Do it until cancelled."""
        while True:
            self._woken.clear()
            try:
                pause_s = await self.once()
                self._completed_at = time.monotonic()
            except Exception:  # noqa: BLE001 - the routine must outlive every outage
                _log.exception("%s failed; trying again", type(self).__name__.lower())
                pause_s = OUTAGE_S
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return
