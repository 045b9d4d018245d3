"""Describe the origin of measured figures: the code's commit, and the machine."""

import os
import platform
import subprocess
from pathlib import Path

from shared.settings import REPOSITORY


def commit(file: Path | None = None) -> str:
    """Return the abbreviated commit of the code, or the last one that changed a file."""
    return _git("log", "-1", "--format=%h", *(["--", str(file)] if file else []))


def is_changed(file: Path) -> bool:
    """Whether the file differs from the committed one."""
    return bool(_git("status", "--porcelain", "--", str(file)))


def machine() -> str:
    """Name the number of processor cores and Python's version."""
    return f"{os.cpu_count()} processor cores, Python {platform.python_version()}"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
