"""Packages that only some of the client's methods need."""

from importlib import import_module
from typing import Any

from mathrag.client.errors import MissingPackage


def require(package: str, method: str) -> Any:
    """Import a package that `method` needs, and return it.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        message = f"`{method}` needs {package}, which is not installed"
        raise MissingPackage("not_installed", message, hint=f"pip install {package}") from error
