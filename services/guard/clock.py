"""The guard's clock: one wall-clock offset for its whole life, so that its stamps never go back."""

import time
from datetime import UTC, datetime, timedelta


class Clock:
    """Wall time at the start plus monotonic time since."""

    def __init__(self) -> None:
        self._wall = datetime.now(UTC)
        self._monotonic = time.monotonic()

    def now(self) -> datetime:
        """The time, in UTC."""
        return self._wall + timedelta(seconds=time.monotonic() - self._monotonic)
