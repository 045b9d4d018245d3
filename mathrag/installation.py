"""This installation: its commit, whether the server is installed, and commands that install missing packages."""

import json
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mathrag.errors import NotInstalled

CLIENT, SERVER = "mathrag", "mathrag-gate"
"""The two distributions. The server requires the client of the same version."""
SERVER_PACKAGE = "mathrag_gate"
"""A package that identifies the server: a user's folder may be called `shared` or `services`, but not this."""
REPOSITORY = Path(__file__).resolve().parent.parent
ORIGIN = "direct_url.json"
"""File in which pip records the origin of an installation (PEP 610)."""


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
    # Without optional locks, a developer who works in this clone never finds its index locked.
    command = [git, "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


def has_server() -> bool:
    """Return True if the server is installed in this environment."""
    return find_spec(SERVER_PACKAGE) is not None


def import_server(module: str, requirement: str = SERVER) -> Any:
    """Import a module of the server, which the client alone does not have.

    Raises:
        NotInstalled: the server is not installed; the hint is the command that installs `requirement`.
    """
    if not has_server():
        raise not_installed(SERVER_PACKAGE, requirement)
    return import_module(module)


def install_command(requirement: str) -> str:
    """Return the command that installs a requirement, such as `mathrag-gate[embedded]`, into this environment.

    No package index has the distributions. The command installs from the wheel or clone of this installation; it
    expects the server's wheel in the folder of the client's wheel.
    """
    name, bracket, extra = requirement.partition("[")
    options, source = _find_source(name)
    return shlex.join([sys.executable, "-m", "pip", "install", *options, f"{source}{bracket}{extra}"])


def _find_source(name: str) -> tuple[list[str], str]:
    """Return pip's options and its argument for a distribution; the wheel's name if its origin is unknown."""
    from importlib.metadata import version

    wheel = f"{name.replace('-', '_')}-{version(CLIENT)}-py3-none-any.whl"
    for installed in (name, CLIENT):
        path, editable = _find_origin(installed)
        if path is None:
            continue
        if path.is_dir():  # a clone
            clone = path.parent if installed == CLIENT else path
            return ["--editable"] if editable else [], str(clone / "mathrag" if name == CLIENT else clone)
        if (found := path if installed == name else path.with_name(wheel)).exists():
            return [], str(found)
    return [], wheel


def _find_origin(name: str) -> tuple[Path | None, bool]:
    """Return the wheel or folder that a distribution was installed from, and True if the code runs from there."""
    from importlib.metadata import PackageNotFoundError, distribution  # 12 ms, which no command needs that works

    try:
        noted = distribution(name).read_text(ORIGIN)
    except PackageNotFoundError:
        noted = None
    if noted is None:
        return None, False
    origin = json.loads(noted)
    path = Path(unquote(urlsplit(origin["url"]).path))
    return path if path.exists() else None, bool(origin.get("dir_info", {}).get("editable"))


def not_installed(package: str, requirement: str, needs_it: str = "") -> NotInstalled:
    """Create the error for a missing package that `requirement` installs; `needs_it` names the feature."""
    why = f": {needs_it}" if needs_it else ""
    what = f"the server (`{SERVER}`)" if package == SERVER_PACKAGE else f"`{package}` of `{requirement}`"
    return NotInstalled(f"{what} is not installed{why}", hint=install_command(requirement))


def find_missing_package(package: str, requirement: str) -> NotInstalled | None:
    """Return the error for a missing package that `requirement` installs; None if the package is installed."""
    return None if find_spec(package) else not_installed(package, requirement)
