"""Import the libraries of the extra `report` when something is drawn: importing them takes a second."""

from importlib import import_module
from typing import Any

from shared.extras import not_installed

EXTRA = "report"


def import_altair() -> Any:
    """Import altair, which describes charts."""
    return _import_library("altair")


def import_converter() -> Any:
    """Import the converter from a description to SVG and PNG, which needs no browser and no network."""
    return _import_library("vl_convert")


def get_vega_lite_version() -> str:
    """Return the version of Vega-Lite that altair writes, such as "6.4"."""
    major, minor, *_ = str(import_altair().SCHEMA_VERSION).removeprefix("v").split(".")
    return f"{major}.{minor}"


def check_installed() -> None:
    """Check that the libraries are installed, before any work is done.

    Raises:
        NotInstalled: one is missing; the hint says how to install it.
    """
    for library in (import_altair, import_converter):
        library()


def _import_library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise not_installed(name, EXTRA, "figures and reports need it") from missing
