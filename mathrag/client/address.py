"""The address of the service."""

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
    """Return MATHRAG_URL, else the address of the stack that runs on the data directory, else the default."""
    if url := os.environ.get("MATHRAG_URL"):
        return url.strip().rstrip("/")
    running = stack_state.read(data_dir or configured_data_dir())
    if running and running.phase == "running":
        return running.url
    _check_settings()
    return DEFAULT


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
