"""Which real servers this run had, and why it lacked others; said at its end."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.real.lacking import Lacking

T = TypeVar("T")
FOUND: dict[str, str] = {}
"""Name -> the version that ran, or why the server was skipped."""


def had(name: str, get: Callable[[], T], version: Callable[[T], str]) -> T:
    """What `get` returns; tests that ask for it are skipped by the server's name where it cannot be had."""
    began = time.monotonic()
    try:
        found = get()
    except Lacking as lacking:
        FOUND[name] = f"SKIPPED: {lacking}"
        pytest.skip(f"{name}: {lacking}")
    FOUND[name] = f"real, {version(found)}, there after {time.monotonic() - began:.0f} s"
    return found
