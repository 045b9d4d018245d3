"""The guard's clock: the database's time when the guard began, and monotonic time since: its stamps never go back.

Neither a jump of the host's wall clock nor a guard that follows under a wrong one can put a stamp before an older one.
"""

import time
from datetime import UTC, datetime, timedelta


class Clock:
    """A time of day at one moment, plus monotonic time since; the host's own until it is set."""

    def __init__(self) -> None:
        self.set(datetime.now(UTC))

    def set(self, at: datetime) -> None:
        """It is `at` now."""
        self._wall = at
        self._monotonic = time.monotonic()

    def now(self) -> datetime:
        """The time, in UTC."""
        return self._wall + timedelta(seconds=time.monotonic() - self._monotonic)
