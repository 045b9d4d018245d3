"""The guard's clock: the database's time at the guard's start plus the monotonic time since, so it never goes back.

Neither a jump of the host's wall clock nor a restart on a host with a wrong clock can make a stamp earlier than an
older one.
"""

import time
from datetime import UTC, datetime, timedelta


class GuardClock:
    """A clock that follows the host's time until it is set, and monotonic time from then on."""

    def __init__(self) -> None:
        self.set(datetime.now(UTC))

    def set(self, at: datetime) -> None:
        """Set the present time to `at`."""
        self._wall = at
        self._monotonic = time.monotonic()

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return self._wall + timedelta(seconds=time.monotonic() - self._monotonic)
