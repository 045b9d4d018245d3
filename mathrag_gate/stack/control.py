"""Let commands reach the supervisor of a data directory, through a lock that it holds and files that it reads.

The kernel releases the lock when its holder dies for any reason. `mathrag scale` writes the requested number of workers
into one file per service, which the supervisor reads regularly. A file needs no port and no signal, and a request may
be repeated or replaced while it is carried out. Lock and files need some free space on the disk.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from mathrag.client.address import LOCK
from mathrag.errors import Conflict
from mathrag_gate.stack.privacy import write_private

WIDTH = 20
"""Number of characters of a process id, padded with leading spaces."""


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the directory inside the block.

    Raises:
        Conflict: another supervisor holds the lock.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    # Python opens files close-on-exec, so children do not inherit the lock.
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a stack is already running in `{data_dir}`",
                hint=f"to see it: mathrag status --data-dir {data_dir}; to stop it: mathrag down --data-dir {data_dir}",
            ) from None
        # A fixed length fits into the file's existing block, even if the disk is full.
        os.pwrite(descriptor, f"{os.getpid():{WIDTH}}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def find_holder(data_dir: Path) -> int | None:
    """Return the process id of the supervisor on this directory; None if no supervisor runs."""
    with suppress(FileNotFoundError):
        descriptor = os.open(data_dir / LOCK, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(descriptor, WIDTH) or b"0") or None
        finally:
            os.close(descriptor)
    return None


SERVICES = ("judge", "generator")
"""Services that can have several workers."""
MOST = 64
"""Maximum number of workers of one service."""

Count = Annotated[int, msgspec.Meta(ge=1, le=MOST)]


def ask_for_workers(data_dir: Path, service: str, count: int) -> None:
    """Ask the supervisor of this directory for `count` workers of a service."""
    write_private(_locate(data_dir, service), str(count))


def read_wanted_workers(data_dir: Path, service: str) -> int | None:
    """Return the number of workers that was last requested; None if none was requested since the stack started.

    Raises:
        ValueError: the file has no valid number; the file is removed.
    """
    file = _locate(data_dir, service)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Count)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        file.unlink(missing_ok=True)
        raise ValueError(f"`{file}` did not contain a number from 1 to {MOST} and was removed: {error}") from error


def forget_wanted_workers(data_dir: Path) -> None:
    """Remove the requests to an earlier supervisor."""
    for service in SERVICES:
        _locate(data_dir, service).unlink(missing_ok=True)


def _locate(data_dir: Path, service: str) -> Path:
    return data_dir / f"scale-{service}.json"


NEEDED = 32 << 20
"""Bytes that must be free: PostgreSQL takes 16 MiB for its next WAL segment, and other processes also write."""


def check_space(data_dir: Path) -> str | None:
    """Return a warning if less than `NEEDED` is free, otherwise None."""
    disk = os.statvfs(data_dir)
    free = disk.f_bavail * disk.f_frsize
    if free >= NEEDED:
        return None
    return (
        f"the disk of `{data_dir}` is full ({free >> 20} MiB free): free {NEEDED >> 20} MiB or more, "
        "and the services start again by themselves"
    )
