"""The address of the service."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from mathrag.client import stack_state
from mathrag.client.data_dir import data_dir as configured_data_dir
from mathrag.client.data_dir import is_data_dir_named
from mathrag.client.errors import Failed, Unreachable
from shared.places import config_file

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
    found = stack_state.read(directory)
    if named and stack_state.is_left_behind(directory):
        found = None
    if found and found.phase == "running":
        return found.url
    _check_settings()
    if named:
        raise _make_error(directory.absolute(), found)
    return DEFAULT


def _make_error(directory: Path, found: stack_state.State | None) -> Unreachable:
    if found and found.phase == "starting":
        hint = f"wait until `mathrag status --data-dir {directory}` shows that it is running"
        return Unreachable("unreachable", f"the stack on {directory} is not ready yet", hint=hint)
    hint = f"mathrag up --detach --data-dir {directory}; for another stack set MATHRAG_DATA_DIR or MATHRAG_URL"
    return Unreachable("unreachable", f"no stack runs on {directory}", hint=hint)


def _check_settings() -> None:
    """Raise the errors of the configuration file: they may be the reason why no server runs."""
    if config_file().exists():
        from shared.settings import load

        load()


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
        raise Failed(
            "usage",
            f"{address!r} is not the address of a server (from MATHRAG_URL, or given to the client)",
            hint=f"use an address such as {DEFAULT}",
        )
    return parts.hostname in LOCAL
