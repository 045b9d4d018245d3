"""This installation: its version and commit, and the commands that add extras to it."""

import json
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.errors import NotInstalled

DISTRIBUTION = "mathrag-gate"
REPOSITORY = Path(__file__).resolve().parent.parent
ORIGIN = "direct_url.json"
"""File in which pip records the origin of an installation (PEP 610)."""


@cache
def release() -> tuple[str, str | None]:
    """Return version and commit of the running program, as `collect_acceptance` stores them."""
    from shared.settings import load  # `mathrag --version` needs none

    return version(DISTRIBUTION), load().commit or checkout()[0]


@cache
def checkout() -> tuple[str | None, bool | None]:
    """Return the commit of this clone, and whether files differ from it; None if there is no clone."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return commit, None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        return None
    # Without optional locks: who works in this clone meanwhile must not find its index locked.
    command = [git, "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment.

    It installs from the wheel or clone of the installation, as the distribution is not published; if that is gone, from
    the usual name of the wheel.
    """
    installed = distribution(DISTRIBUTION)
    options, source = [], f"{DISTRIBUTION.replace('-', '_')}-{installed.version}-py3-none-any.whl"
    if (noted := installed.read_text(ORIGIN)) is not None:
        origin = json.loads(noted)
        path = Path(unquote(urlsplit(origin["url"]).path))
        if path.exists():
            options, source = ["--editable"] if origin.get("dir_info", {}).get("editable") else [], str(path)
    return shlex.join([sys.executable, "-m", "pip", "install", *options, f"{source}[{extra}]"])


def not_installed(package: str, extra: str, needs_it: str = "") -> NotInstalled:
    """Make the error for a missing package of an extra; `needs_it` says what needs it."""
    why = f": {needs_it}" if needs_it else ""
    return NotInstalled(f"`{package}` of the extra `{extra}` is not installed{why}", hint=install_command(extra))


def find_missing_package(package: str = "sqlalchemy", extra: str = "server") -> NotInstalled | None:
    """Return the error for a missing package, by default one that represents the extra `server`; None if it is
    installed."""
    return None if find_spec(package) else not_installed(package, extra)
