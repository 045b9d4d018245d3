"""Finds what varies within an experiment, and arranges its cells along one or two axes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from shared.errors import Invalid
from shared.storage.experiments import Cell

AnyCell = TypeVar("AnyCell", bound=Cell)
DATASET, VARIANT, SEED = "dataset", "variant", "seed"
NO_AXIS = "none"
Axes = Mapping[str, Sequence[str]]
"""Values by the name of the axis, in the order of the document; only axes that vary."""


class ChosenAxes(NamedTuple):
    """Names the axes that were chosen for a figure."""

    x: str | None
    """Name of the horizontal axis; None if nothing varies."""
    y: str | None
    """Name of the vertical axis; None if one axis is enough."""


def find_axes(cells: Sequence[Cell]) -> Axes:
    """Return the datasets, variants, grid parameters and seeds that have several values."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in locate_cell(cell).items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items() if len(values) > 1}


def locate_cell(cell: Cell) -> dict[str, str]:
    """Return a cell's value on every axis."""
    dataset = cell.dataset if cell.corpus in (None, cell.dataset) else f"{cell.dataset} in {cell.corpus}"
    point = {path: format_value(value) for path, value in cell.point.items()}
    return {**point, VARIANT: cell.variant, DATASET: dataset, SEED: str(cell.seed)}


def format_value(value: Any) -> str:
    """Return a parameter's value as text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def choose(known: Axes, x: str | None, y: str | None) -> ChosenAxes:
    """Return the requested axes; by default parameters are preferred to variants and datasets.

    Raises:
        Invalid: there is no such axis, or both are the same.
    """
    for field, name in (("x", x), ("y", y)):
        if name is not None and name not in known and (field, name) != ("y", NO_AXIS):
            raise Invalid(f"`{field}`: {name!r} does not vary here", hint=f"use one of: {', '.join(known) or 'none'}")
    if x is not None and x == y:
        raise Invalid("`y`: the same as `x`", hint=f"y={NO_AXIS} shows one axis")
    ordered = sorted(known, key=lambda name: name in (DATASET, VARIANT))
    along = x or next((name for name in ordered if name != y), None)
    return ChosenAxes(along, None if y == NO_AXIS else y or _choose_second(ordered, along))


def _choose_second(ordered: Sequence[str], x: str | None) -> str | None:
    """Return another parameter as the second axis; variants and datasets are used only if there is no parameter at
    all.
    """
    others = [name for name in ordered if name != x]
    parameters = [name for name in others if name not in (DATASET, VARIANT)]
    if parameters:
        return parameters[0]
    return next(iter(others), None) if x in (DATASET, VARIANT) else None


def split_by_figure(cells: Iterable[AnyCell], known: Axes, without: Iterable[str | None]) -> dict[str, list[AnyCell]]:
    """Return the cells of each figure by what they have in common, such as "variant dense, seed 1"."""
    names = [name for name in known if name not in without]
    found: dict[str, list[AnyCell]] = {}
    for cell in cells:
        at = locate_cell(cell)
        found.setdefault(", ".join(f"{name} {at[name]}" for name in names), []).append(cell)
    return found
