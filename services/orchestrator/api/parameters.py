"""The parameters of a job as the fields of a form; type, bounds, default and text are derived from `Params` itself."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import inspect

from shared.docstrings import read_docstrings
from shared.params import RANGES, Params
from shared.pipelines.switches import covers
from shared.rag.grading import grader_names

PREFIX = "params."
"""Prefix of a parameter's name in forms and addresses, as in the API's messages."""
FILLED_IN = ("mining", "crag.calibrated", "gate.calibrated", "rulerag.phrases")
"""Parameters that only the service sets, some of them at submission."""

SHIPPED = Params()
GRADER = "grading.grader"
"""The parameter whose choices are unknown until the plug-ins are loaded."""
LONGEST_LINE = 200
"""Length in characters above which a parameter gets a field of several lines."""
UNBOUNDED = 1e12
"""Bounds from this value on are those of the machine's integers and are not shown."""
Kind = Literal["whole", "number", "choice", "flag", "text", "lines", "json"]


class Parameter(NamedTuple):
    """Describes a parameter as a form needs it: path, kind, default, bounds and help."""

    path: str
    """Path of the parameter, such as `gate.tau`."""
    kind: Kind
    default: Any
    """Value that applies if the field is left empty."""
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    prefix: str = PREFIX

    @property
    def name(self) -> str:
        """Return the name of the field in forms."""
        return f"{self.prefix}{self.path}"

    @property
    def bounds(self) -> str:
        """Return the bounds, such as "1 to 1,000"; empty if there are none worth showing."""
        if self.low is None or abs(self.low) >= UNBOUNDED:
            return ""
        return f"from {self.low:,}" if self.high is None else f"{self.low:,} to {self.high:,}"


class Section(NamedTuple):
    """A group of fields that are shown together."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]


def list_sections(read: Callable[[str], bool], configured: Params = SHIPPED) -> list[Section]:
    """Return the parameters whose path satisfies `read`, by group; those without a group come first, as `general`."""
    groups: dict[str, list[Parameter]] = {"general": []}
    for each in parameters(configured):
        if read(each.path):
            group, dot, _ = each.path.partition(".")
            groups.setdefault(group if dot else "general", []).append(each)
    return [Section(name, _explain(name), tuple(found)) for name, found in groups.items() if found]


def get_names(drawn: Iterable[Section]) -> set[str]:
    """Return the names of the fields in these sections."""
    return {each.name for section in drawn for each in section.parameters}


def parameters(configured: Params = SHIPPED) -> tuple[Parameter, ...]:
    """Return all parameters that a user may set, in the order of `Params`, with the defaults of `configured`."""
    return tuple(each for each in _list_fields(Params, configured, "") if not covers(each.path, FILLED_IN))


def nest(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a form or an address, nested and typed as in JSON; an empty value is not set.

    A value that does not parse as number or JSON, or that is no parameter, stays a string, so that the API's checks
    report it.
    """
    kinds = _map_kinds()
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith(PREFIX) and value:
            path = name.removeprefix(PREFIX)
            _put(nested, path.split("."), _parse(value, kinds.get(path, "text")))
    return nested


def flatten(params: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, str]:
    """Return nested parameters by their names in a form: the reverse of `tree`."""
    known = _map_kinds()
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and f"{prefix}{name}".removeprefix(PREFIX) not in known:
            found |= flatten(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = format_value(value)
    return found


def format_value(value: Any) -> str:
    """Return a value as the text of a form's field."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@cache
def _map_kinds() -> dict[str, Kind]:
    return {each.path: each.kind for each in parameters()}


def _list_fields(kind: type[msgspec.Struct], group: msgspec.Struct | None, prefix: str) -> Iterator[Parameter]:
    texts = read_docstrings(kind)
    described: Any = inspect.type_info(kind)
    for field in described.fields:
        path, default = f"{prefix}{field.name}", getattr(group, field.name, None)
        found = _drop_null(field.type)
        if isinstance(found, inspect.StructType):
            yield from _list_fields(found.cls, default, f"{path}.")
        else:
            yield _make_parameter(path, found, default, texts.get(field.name, ""))


def _drop_null(found: Any) -> Any:
    """Return the type without the null of an optional parameter."""
    return found.types[0] if isinstance(found, inspect.UnionType) else found


def _make_parameter(path: str, found: Any, default: Any, text: str) -> Parameter:
    if path == GRADER:
        return Parameter(path, "choice", default, text, choices=grader_names())
    match found:
        case inspect.BoolType():
            return Parameter(path, "flag", default, text)
        case inspect.LiteralType():
            return Parameter(
                path, "choice", default, text, choices=tuple(str(value) for value in found.values if value)
            )
        case inspect.IntType() | inspect.FloatType():
            low, high = RANGES.get(path, (found.ge if found.gt is None else found.gt, found.le))
            kind: Kind = "whole" if isinstance(found, inspect.IntType) else "number"
            return Parameter(path, kind, default, text, low=low, high=high)
        case inspect.StrType():
            return Parameter(path, "lines" if (found.max_length or 0) > LONGEST_LINE else "text", default, text)
    return Parameter(path, "json", default, text)


def _explain(group: str) -> str:
    kind = type(getattr(Params(), group, None))
    return read_docstrings(Params).get(group) or (kind.__doc__ or "" if issubclass(kind, msgspec.Struct) else "")


def _parse(value: str, kind: Kind) -> Any:
    try:
        match kind:
            case "whole":
                return int(value)
            case "number":
                return _require_finite(float(value), value)
            case "json":
                return msgspec.json.decode(value)
    except (ValueError, msgspec.DecodeError):
        return value
    return {"true": True, "false": False}.get(value, value) if kind == "flag" else value


def _require_finite(number: float, text: str) -> float | str:
    return number if math.isfinite(number) else text


def _put(nested: dict[str, Any], path: list[str], value: Any) -> None:
    """Set `value` at `path`. A value in the way that is not a group stays; the API refuses the longer name."""
    *groups, leaf = path
    for group in groups:
        inner = nested.setdefault(group, {})
        if not isinstance(inner, dict):
            return
        nested = inner
    nested[leaf] = value
