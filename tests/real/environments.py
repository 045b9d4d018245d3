"""Programs that are published as Python packages, each in an environment of its own, made once from its lock file."""

import subprocess
import sys
from pathlib import Path

from tests.real.lacking import Lacking
from tests.running import REPOSITORY


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
