"""Where the API is: the address in the environment, the configuration, or of the stack that runs here."""

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
"""Variables that do not require checking all settings to find the data directory."""


def configured_data_dir() -> Path:
    """Return `data_dir` of the settings, from environment, configuration file or default, in this order.

    The server's installation also reads secret files. Checking all settings takes longer than most commands that only
    have to find the service; they are checked where the environment holds others. A file is read for this one alone.
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
    """Tell whether the environment names the data directory."""
    return any(name.lower() == "mathrag_data_dir" and value for name, value in os.environ.items())


def _read_data_dir(text: str) -> str:
    """Return the data directory that the file sets, or the default; raise ValueError if it is not text."""
    import yaml

    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError from error
    folder = content.get("data_dir", str(DATA_DIR)) if isinstance(content, dict) else None
    if not isinstance(folder, str):
        raise ValueError  # noqa: TRY004 - the caller has all settings checked, which say what is wrong
    return folder


def _load_checked() -> Path:
    """Return the data directory from all settings, whose errors name what is wrong.

    Raises:
        Failed: the settings file cannot be read, and no server is installed here whose checks would say why.
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
        hint = "correct it, or name the server with MATHRAG_URL"
        raise Failed("invalid", f"`{config_file()}` cannot be read as settings", hint=hint) from error


STATE_FILE = "state.json"
"""What the supervisor tells about itself: a file that is replaced at every change, without any secret in it."""
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


def write_state(data_dir: Path, state: State) -> None:
    """Replace the file; a reader sees the old state or the new one."""
    partial = data_dir / f"{STATE_FILE}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    partial.rename(data_dir / STATE_FILE)


def read_state(data_dir: Path) -> State | None:
    """Read the last state written; None if no stack has run here, or the file cannot be decoded."""
    try:
        return msgspec.json.decode((data_dir / STATE_FILE).read_bytes(), type=State)
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


DEFAULT = "http://127.0.0.1:8080"
LOCAL = ("127.0.0.1", "localhost", "::1")


def url(data_dir: Path | None = None) -> str:
    """Return MATHRAG_URL, else the address of the stack that runs on the data directory, else the default.

    Raises:
        Unreachable: no stack runs on a data directory that was named: the default address is that of another one.
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
    # Raise the errors of the configuration file: they may be the reason why no server runs.
    if config_file().exists():
        _load_checked()
    if not named:
        return DEFAULT
    directory = directory.absolute()
    if found and found.phase == "starting":
        hint = f"wait until `mathrag status --data-dir {directory}` shows that it is running"
        raise Unreachable("unreachable", f"the stack on {directory} is not ready yet", hint=hint)
    hint = f"mathrag up --detach --data-dir {directory}; for another stack set MATHRAG_DATA_DIR or MATHRAG_URL"
    raise Unreachable("unreachable", f"no stack runs on {directory}", hint=hint)


def is_local(address: str) -> bool:
    """Tell whether the address is one of this machine.

    Raises:
        Failed: it is not the address of a server.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = f"{address!r} is not the address of a server (from MATHRAG_URL, or given to the client)"
        raise Failed("usage", message, hint=f"use an address such as {DEFAULT}")
    return parts.hostname in LOCAL
