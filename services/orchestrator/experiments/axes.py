"""What varies within an experiment, and its cells arranged by it: a grid to look at has one or two axes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from shared.errors import Invalid
from shared.storage.experiments import Cell

AnyCell = TypeVar("AnyCell", bound=Cell)
DATASET, VARIANT, SEED = "dataset", "variant", "seed"
NO_AXIS = "none"
Axes = Mapping[str, Sequence[str]]
"""Values by name, in the order of the document; only of what varies."""


class Chosen(NamedTuple):
    """The axes of a picture."""

    x: str | None
    """None: nothing varies."""
    y: str | None
    """None: one axis is enough."""


def axes(cells: Sequence[Cell]) -> Axes:
    """Datasets, variants, parameters of the grid and seeds of which there are several."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in place(cell).items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items() if len(values) > 1}


def place(cell: Cell) -> dict[str, str]:
    """Where a cell stands on every axis."""
    dataset = cell.dataset if cell.corpus in (None, cell.dataset) else f"{cell.dataset} in {cell.corpus}"
    point = {path: written(value) for path, value in cell.point.items()}
    return {**point, VARIANT: cell.variant, DATASET: dataset, SEED: str(cell.seed)}


def written(value: Any) -> str:
    """A parameter's value as one writes it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def choose(known: Axes, x: str | None, y: str | None) -> Chosen:
    """The axes that were asked for; parameters come before variants and datasets where none was.

    Raises:
        Invalid: there is no such axis, or both are the same.
    """
    for field, name in (("x", x), ("y", y)):
        if name is not None and name not in known and (field, name) != ("y", NO_AXIS):
            raise Invalid(f"`{field}`: {name!r} does not vary here", hint=f"one of: {', '.join(known) or 'none'}")
    if x is not None and x == y:
        raise Invalid("`y`: the same as `x`", hint=f"y={NO_AXIS} shows one axis")
    ordered = sorted(known, key=lambda name: name in (DATASET, VARIANT))
    along = x or next((name for name in ordered if name != y), None)
    return Chosen(along, None if y == NO_AXIS else y or _second(ordered, along))


def _second(ordered: Sequence[str], x: str | None) -> str | None:
    """Another parameter; of variants and datasets the other one only where there is no parameter at all."""
    others = [name for name in ordered if name != x]
    parameters = [name for name in others if name not in (DATASET, VARIANT)]
    if parameters:
        return parameters[0]
    return next(iter(others), None) if x in (DATASET, VARIANT) else None


def apart(cells: Iterable[AnyCell], known: Axes, without: Iterable[str | None]) -> dict[str, list[AnyCell]]:
    """The cells of each picture, by what they have in common, such as "variant dense, seed 1"."""
    named = [name for name in known if name not in without]
    found: dict[str, list[AnyCell]] = {}
    for cell in cells:
        at = place(cell)
        found.setdefault(", ".join(f"{name} {at[name]}" for name in named), []).append(cell)
    return found
