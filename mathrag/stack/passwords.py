"""Passwords of the embedded servers, created once and kept in a file that only its owner can read."""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from shared.errors import Unavailable


def _make_password() -> str:
    # Hexadecimal digits need no quoting in SQL, in a URL or in redis.conf.
    return secrets.token_hex(24)


@dataclass(frozen=True, kw_only=True)
class Passwords:
    """Keeps one password per account; none is ever on a command line or in a log."""

    superuser: str = field(default_factory=_make_password, repr=False)
    owner: str = field(default_factory=_make_password, repr=False)
    app: str = field(default_factory=_make_password, repr=False)
    redis: str = field(default_factory=_make_password, repr=False)
    service: str = field(default_factory=_make_password, repr=False)
    """Key that guard and retriever require, because other users of this machine can reach their ports."""


def load_passwords(data_dir: Path) -> Passwords:
    """Return the passwords of this data directory, and create them on the first call.

    Raises:
        Unavailable: the file is damaged.
    """
    path = data_dir / "passwords.json"
    if not path.exists():
        draft = data_dir / f"passwords.{os.getpid()}"
        write_private(draft, json.dumps(asdict(Passwords())))
        # If two processes start at once, the first one's file wins: a cluster may already use its passwords.
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
    """Write a file atomically, with mode 0600 from its first byte on."""
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
