"""One supervisor per data directory: a lock that the kernel releases when its holder dies, however it dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mathrag.client.stack_state import LOCK
from shared.errors import Conflict

WIDTH = 20
"""Characters of a process id, padded with spaces in front."""


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the directory inside the block.

    Raises:
        Conflict: another supervisor holds it.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    # Not inherited: Python opens files close-on-exec, so children do not keep the lock alive.
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(descriptor, data_dir)
        # A fixed length fits into the file's existing block, even if the disk is full.
        os.pwrite(descriptor, f"{os.getpid():{WIDTH}}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, data_dir: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(
            f"a stack already runs on `{data_dir}`",
            hint=f"mathrag status --data-dir {data_dir}; mathrag down --data-dir {data_dir}",
        ) from None


def find_holder(data_dir: Path) -> int | None:
    """Return the process id of the supervisor that runs on this directory, or None."""
    with suppress(FileNotFoundError):
        descriptor = os.open(data_dir / LOCK, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(descriptor, WIDTH) or b"0") or None
        finally:
            os.close(descriptor)
    return None
