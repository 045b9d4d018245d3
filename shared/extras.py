"""The distribution's extras, and the commands that install them from its wheel or clone, since it is not published."""

import shlex
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from shared.errors import NotInstalled

DISTRIBUTION = "mathrag-gate"
ORIGIN = "direct_url.json"
"""File in which pip records the origin of an installation (PEP 610)."""


class _Folder(msgspec.Struct, frozen=True):
    editable: bool = False


class _Origin(msgspec.Struct, frozen=True):
    url: str
    dir_info: _Folder = _Folder()


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, from the wheel or clone of the installation."""
    options, source = _source()
    return shlex.join([sys.executable, "-m", "pip", "install", *options, f"{source}[{extra}]"])


def not_installed(package: str, extra: str, needs_it: str = "") -> NotInstalled:
    """Make the error for a missing package of an extra; `needs_it` says what needs it."""
    why = f": {needs_it}" if needs_it else ""
    return NotInstalled(f"`{package}` of the extra `{extra}` is not installed{why}", hint=install_command(extra))


def find_missing_package(package: str = "sqlalchemy", extra: str = "server") -> NotInstalled | None:
    """Return the error for a missing package, by default one that represents the extra `server`; None if it is
    installed."""
    return None if find_spec(package) else not_installed(package, extra)


def _source() -> tuple[list[str], str]:
    """Return pip's options and the path of the wheel or clone; if the path is gone, the usual name of the wheel."""
    installed = distribution(DISTRIBUTION)
    noted = installed.read_text(ORIGIN)
    if noted is not None:
        origin = msgspec.json.decode(noted, type=_Origin)
        path = Path(unquote(urlsplit(origin.url).path))
        if path.exists():
            return (["--editable"] if origin.dir_info.editable else []), str(path)
    return [], f"{DISTRIBUTION.replace('-', '_')}-{installed.version}-py3-none-any.whl"
