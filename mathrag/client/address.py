"""Where the service is."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from mathrag.client import stack_state
from mathrag.client.data_dir import data_dir as configured_data_dir
from mathrag.client.errors import Failed
from shared.places import config_file

DEFAULT = "http://127.0.0.1:8080"
LOCAL = ("127.0.0.1", "localhost", "::1")


def url(data_dir: Path | None = None) -> str:
    """MATHRAG_URL, else where the stack of the data directory runs, else the default."""
    if given := os.environ.get("MATHRAG_URL"):
        return given.rstrip("/")
    running = stack_state.read(data_dir or configured_data_dir())
    if running and running.phase == "running":
        return running.url
    _check_settings()
    return DEFAULT


def _check_settings() -> None:
    """Say what is wrong with the configuration file before a server is asked that it may keep from starting."""
    if config_file().exists():
        from shared.settings import load

        load()


def is_local(address: str) -> bool:
    """Whether this is a server of this machine.

    Raises:
        Failed: it is no address of a server.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed("usage", f"MATHRAG_URL: {address!r} is no address of a server", hint=f"such as {DEFAULT}")
    return parts.hostname in LOCAL
