"""Find the address of the API: in the environment, in the configuration, or from the stack on this machine."""

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from mathrag.client.errors import Failed, Unreachable
from mathrag.installation import has_server, import_server
from mathrag.places import DATA_DIR, config_file

PREFIX = "mathrag_"
NO_SETTINGS = frozenset(f"{PREFIX}{name}" for name in ("data_dir", "config", "url", "api_key"))
"""Environment variables that can be set without all settings being checked to find the data directory."""


def configured_data_dir() -> Path:
    """Return `data_dir` of the settings, from environment, configuration file or default, in this order.

    Checking all settings takes longer than most commands that only need the service's address. So they are checked
    only if the environment sets other variables; otherwise only `data_dir` is read from the file.
    """
    environment = {name.lower(): value for name, value in os.environ.items()}
    if any(name.startswith(PREFIX) and name not in NO_SETTINGS for name in environment):
        return _load_checked()
    if (given := environment.get("mathrag_data_dir")) is not None:
        return Path(given)
    if config_file().exists():
        try:
            text = config_file().read_text("utf-8")
            return Path(_read_data_dir(text)) if "data_dir" in text else DATA_DIR
        except (OSError, ValueError):
            return _load_checked()
    return DATA_DIR


def is_data_dir_named() -> bool:
    """Return True if the environment names the data directory."""
    return any(name.lower() == "mathrag_data_dir" and value for name, value in os.environ.items())


def _read_data_dir(text: str) -> str:
    """Return the data directory that the file sets, or the default; raise ValueError if the value is not text."""
    import yaml

    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError from error
    folder = content.get("data_dir", str(DATA_DIR)) if isinstance(content, dict) else None
    if not isinstance(folder, str):
        raise ValueError  # noqa: TRY004 - the caller then checks all settings, which names the problem
    return folder


def _load_checked() -> Path:
    """Return the data directory after checking all settings; the errors of the checks name the wrong setting.

    Raises:
        Failed: the settings file cannot be read, and the server, whose checks name the reason, is not installed.
    """
    if has_server():
        folder: Path = import_server("shared.settings").load().data_dir
        return folder
    for name, value in os.environ.items():
        if name.lower() == "mathrag_data_dir":
            return Path(value)
    try:
        return Path(_read_data_dir(config_file().read_text("utf-8"))) if config_file().exists() else DATA_DIR
    except ValueError as error:
        hint = "correct the file, or set MATHRAG_URL to the server's address"
        raise Failed(
            "invalid", f"settings file `{config_file()}` is not YAML in UTF-8, or its `data_dir` is not text", hint=hint
        ) from error


STATE_FILE = "state.json"
"""File with the supervisor's state. The supervisor replaces it at every change; it contains no secrets."""
LOCK = "lock"
"""File that the supervisor keeps locked while it runs."""

Phase = Literal["starting", "running", "stopping", "stopped"]


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one child process."""

    name: str
    phase: str
    pid: int | None
    port: int | None
    restarts: int
    log: str
    service: str = ""
    """Service that it runs; empty for PostgreSQL and Redis."""
    born: str = ""
    """Start time of the process, in the form of `birth`; empty in files of older releases."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """State of the whole stack."""

    pid: int
    url: str
    phase: Phase
    children: tuple[ChildState, ...]
    wanted: dict[str, int] | None = None
    """Numbers of workers by service that `mathrag scale` requested; None in files of older releases."""


def write_state(data_dir: Path, state: State) -> None:
    """Replace the file atomically: a reader sees the old state or the new one."""
    partial = data_dir / f"{STATE_FILE}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    partial.rename(data_dir / STATE_FILE)


def read_state(data_dir: Path) -> State | None:
    """Read the last state; None if no stack has run here, or if the file cannot be decoded."""
    try:
        return msgspec.json.decode((data_dir / STATE_FILE).read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def is_left_behind(data_dir: Path) -> bool:
    """Return True if the supervisor that wrote the state was killed: its lock is free."""
    try:
        import fcntl
    except ImportError:
        return False  # not Unix: no supervisor runs here
    try:
        with (data_dir / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # the supervisor holds the lock, or this user may not open the file
    return True


DEFAULT = "http://127.0.0.1:8080"
LOCAL = ("127.0.0.1", "localhost", "::1")


def url(data_dir: Path | None = None) -> str:
    """Return MATHRAG_URL, or the address of the stack on the data directory, or the default.

    Raises:
        Unreachable: no stack runs on the named data directory. The default address would be that of another stack.
    """
    if url := os.environ.get("MATHRAG_URL"):
        return url.strip().rstrip("/")
    named = data_dir is not None or is_data_dir_named()
    directory = data_dir or configured_data_dir()
    found = read_state(directory)
    if named and is_left_behind(directory):
        found = None
    if found and found.phase == "running":
        return found.url
    # Raise the errors of the configuration file: they may explain why no server runs.
    if config_file().exists():
        _load_checked()
    if not named:
        return DEFAULT
    directory = directory.absolute()
    if found and found.phase == "starting":
        hint = f"wait until `mathrag status --data-dir {directory}` shows that it is running"
        raise Unreachable("unreachable", f"the stack in {directory} is not ready yet", hint=hint)
    hint = f"mathrag up --detach --data-dir {directory}; for another stack set MATHRAG_DATA_DIR or MATHRAG_URL"
    raise Unreachable("unreachable", f"no stack is running in {directory}", hint=hint)


def is_local(address: str) -> bool:
    """Return True if the address belongs to this machine.

    Raises:
        Failed: the text is not the address of a server.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = f"{address!r} is not the address of a server; it comes from MATHRAG_URL or from the client's `url`"
        raise Failed("usage", message, hint=f"use an address such as {DEFAULT}")
    return parts.hostname in LOCAL
