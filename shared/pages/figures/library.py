"""The libraries of the extra `report`, imported when something is drawn: that takes a second."""

from importlib import import_module
from typing import Any

from shared.errors import Unavailable

EXTRA = "pip install 'mathrag-gate[report]'"


def altair() -> Any:
    """What charts are described with."""
    return _imported("altair")


def converter() -> Any:
    """What turns a description into SVG and PNG, without a browser and without a network."""
    return _imported("vl_convert")


def grammar() -> str:
    """The version of Vega-Lite that altair writes, such as "6.4"."""
    major, minor, *_ = str(altair().SCHEMA_VERSION).removeprefix("v").split(".")
    return f"{major}.{minor}"


def required() -> None:
    """Find out before any work is done that something is missing.

    Raises:
        Unavailable: it is; the hint says what to install.
    """
    for library in (altair, converter):
        library()


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise Unavailable(f"{name} is not installed: figures and reports need it", hint=EXTRA) from missing
