"""Passwords of the embedded servers: made once, kept in a file that only its owner can read."""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from shared.errors import Unavailable


def _random() -> str:
    # Hexadecimal, so that it needs no quoting in SQL, in a URL or in redis.conf.
    return secrets.token_hex(24)


@dataclass(frozen=True, kw_only=True)
class Passwords:
    """One password per account; never on a command line, never in a log."""

    superuser: str = field(default_factory=_random, repr=False)
    owner: str = field(default_factory=_random, repr=False)
    app: str = field(default_factory=_random, repr=False)
    redis: str = field(default_factory=_random, repr=False)
    service: str = field(default_factory=_random, repr=False)
    """What guard and retriever ask for: other users of this machine reach their ports, too."""


def remembered(data_dir: Path) -> Passwords:
    """The passwords of this data directory; made on the first call."""
    path = data_dir / "passwords.json"
    if not path.exists():
        draft = data_dir / f"passwords.{os.getpid()}"
        write_private(draft, json.dumps(asdict(Passwords())))
        # Of two that start at once, the first one's are kept: a cluster may be built with them already.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Passwords)
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"`{path}` does not hold the passwords of this data folder: {error}",
            hint=f"restore the file from a backup; without it the database in `{data_dir}` cannot be opened",
        ) from error


def write_private(path: Path, content: str) -> None:
    """Write a file that is 0600 from its first byte on, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not name its file
    partial.rename(path)
