"""What the supervisor tells about itself: a file that is replaced at every change, without any secret in it."""

from pathlib import Path
from typing import Literal

import msgspec

FILE = "state.json"
LOCK = "lock"
"""File that the supervisor holds locked while it runs."""

Phase = Literal["starting", "running", "stopping", "stopped"]


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """One child as it is now."""

    name: str
    phase: str
    pid: int | None
    port: int | None
    restarts: int
    log: str
    service: str = ""
    """Service that it runs; empty for PostgreSQL and Redis."""
    born: str = ""
    """When the process began, as `birth` says it; empty in files of releases that did not write it."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The whole stack as it is now."""

    pid: int
    url: str
    phase: Phase
    children: tuple[ChildState, ...]
    wanted: dict[str, int] | None = None
    """Numbers of workers by service that `mathrag scale` has asked for; None in files of releases without it."""


def write(data_dir: Path, state: State) -> None:
    """Replace the file; a reader sees the old state or the new one."""
    partial = data_dir / f"{FILE}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    partial.rename(data_dir / FILE)


def read(data_dir: Path) -> State | None:
    """Read the last state written; None if no stack has run here, or the file cannot be decoded."""
    try:
        return msgspec.json.decode((data_dir / FILE).read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def is_left_behind(data_dir: Path) -> bool:
    """Tell whether the supervisor that wrote the state has ended without a word: nobody holds the lock."""
    try:
        import fcntl
    except ImportError:
        return False  # not Unix: there is no supervisor here that could have ended
    try:
        with (data_dir / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it is held, or not ours to look at
    return True
