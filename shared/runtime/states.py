"""The states of a sample as they stand in the database, and which states of a job are live."""

from enum import IntEnum


class SampleState(IntEnum):
    """0 and 1 are live, the others absorb."""

    READY = 0
    WAITING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4


LIVE_JOBS = ("preparing", "running")
TERMINAL_JOBS = ("completed", "failed", "cancelled")
