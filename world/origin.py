"""Where measured figures come from: the code's commit, and the machine."""

import os
import platform
import subprocess
from pathlib import Path

from shared.settings import REPOSITORY


def commit(file: Path | None = None) -> str:
    """The commit of the code, abbreviated; of a file the last one that changed it."""
    return _git("log", "-1", "--format=%h", *(["--", str(file)] if file else []))


def is_changed(file: Path) -> bool:
    """Whether the file is not as it was committed."""
    return bool(_git("status", "--porcelain", "--", str(file)))


def machine() -> str:
    """Processor cores and Python."""
    return f"{os.cpu_count()} processor cores, Python {platform.python_version()}"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
