"""The number of workers that a running stack is asked for: a file per service, which its supervisor reads regularly.

A file needs no port and no signal, and a request that is repeated or replaced while it is carried out loses nothing.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from mathrag.stack.passwords import write_private

SERVICES = ("judge", "generator")
"""The services of which there may be several workers."""
MOST = 64
"""Maximum number of workers of one service."""

Count = Annotated[int, msgspec.Meta(ge=1, le=MOST)]


def ask(data_dir: Path, service: str, count: int) -> None:
    """Ask the supervisor of this directory for so many workers of a service."""
    write_private(_locate(data_dir, service), str(count))


def read(data_dir: Path, service: str) -> int | None:
    """Return the number of workers that was last asked for; None if none was since the stack started.

    Raises:
        ValueError: the file holds no such number; it has been removed.
    """
    file = _locate(data_dir, service)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Count)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        file.unlink(missing_ok=True)
        raise ValueError(f"`{file}` holds no number from 1 to {MOST} and was removed: {error}") from error


def forget(data_dir: Path) -> None:
    """Remove what an earlier supervisor was asked for."""
    for service in SERVICES:
        _locate(data_dir, service).unlink(missing_ok=True)


def _locate(data_dir: Path, service: str) -> Path:
    return data_dir / f"scale-{service}.json"
