"""Which real servers this run has, and why it lacks others: what is installed once, and what is said at the end."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.running import REPOSITORY


class Lacking(Exception):
    """Tests that need the server are skipped with these words."""


def environment(name: str) -> Path:
    """The environment of `requirements/NAME.txt`, whose packages bring all that they need.

    Raises:
        Lacking: the packages cannot be had for this machine.
    """
    folder, lock = REPOSITORY / ".venv" / name, REPOSITORY / "requirements" / f"{name}.txt"
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        _install(folder / "bin" / "python", lock)
        installed.write_bytes(lock.read_bytes())
    return folder


def _install(python: Path, lock: Path) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command = [*pip, "--require-hashes", "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Lacking(f"pip cannot install {lock.name}: {done.stderr.strip().splitlines()[-1][:300]}")


def version(folder: Path, package: str) -> str:
    """Of a package in an environment."""
    command = [str(folder / "bin" / "python"), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


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
