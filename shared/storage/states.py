"""States of samples, which the database keeps as numbers, and what several modules ask of the states of jobs."""

from enum import IntEnum


class SampleState(IntEnum):
    """What `samples.state` holds; from `COMPLETED` on a sample has ended."""

    READY = 0
    WAITING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4

    @property
    def word(self) -> str:
        """As users see it and as records hold it."""
        return self.name.lower()


RUNNABLE = frozenset({"preparing", "running"})
"""States of a job whose samples are advanced and whose calls are claimed."""
TERMINAL = frozenset({"completed", "failed", "cancelled"})
"""States of a job that has ended."""
