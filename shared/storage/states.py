"""States of samples, which the database stores as numbers, and groups of job states."""

from enum import IntEnum


class SampleState(IntEnum):
    """Values of `samples.state`; from `COMPLETED` on, a sample has ended."""

    READY = 0
    WAITING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4

    @property
    def word(self) -> str:
        """The name in answers and records."""
        return self.name.lower()


RUNNABLE = frozenset({"preparing", "running"})
"""States of a job whose samples are advanced and whose calls are claimed."""
TERMINAL = frozenset({"completed", "failed", "cancelled"})
"""States of a job that has ended."""
