"""The parameters of a job as the fields of a form, from `Params` itself: type, bounds, default, docstring."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import inspect

from shared.contracts.params import RANGES, Params
from shared.docstrings import docstrings
from shared.pipelines.registry import covered

PREFIX = "params."
"""Of a parameter's name in forms and addresses, as in the API's messages."""
FILLED_IN = ("mining", "crag.calibrated", "gate.calibrated", "rulerag.phrases")
"""At submission, or by the service alone."""

SHIPPED = Params()
LONGEST_LINE = 200
"""Characters: what may be longer has a field of several lines."""
UNBOUNDED = 1e12
"""Bounds from here on are those of the machine."""
Kind = Literal["whole", "number", "choice", "flag", "text", "lines", "json"]


class Parameter(NamedTuple):
    """One field."""

    path: str
    """Such as `gate.tau`."""
    kind: Kind
    default: Any
    """What counts where nothing is set."""
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    prefix: str = PREFIX

    @property
    def name(self) -> str:
        """In forms."""
        return f"{self.prefix}{self.path}"

    @property
    def bounds(self) -> str:
        """Such as "1 to 1,000"; nothing where there are none worth saying."""
        if self.low is None or abs(self.low) >= UNBOUNDED:
            return ""
        return f"from {self.low:,}" if self.high is None else f"{self.low:,} to {self.high:,}"


class Section(NamedTuple):
    """The fields that stand together."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]


def sections(read: Callable[[str], bool], configured: Params = SHIPPED) -> list[Section]:
    """The parameters whose path `read` says is read, by group; those of no group come first, as `general`."""
    groups: dict[str, list[Parameter]] = {"general": []}
    for each in parameters(configured):
        if read(each.path):
            group, dot, _ = each.path.partition(".")
            groups.setdefault(group if dot else "general", []).append(each)
    return [Section(name, _meaning(name), tuple(found)) for name, found in groups.items() if found]


def names(drawn: Iterable[Section]) -> set[str]:
    """The fields of these sections."""
    return {each.name for section in drawn for each in section.parameters}


def parameters(configured: Params = SHIPPED) -> tuple[Parameter, ...]:
    """All of them that somebody may set, in the order of `Params`; what is not set is as `configured`."""
    return tuple(each for each in _fields(Params, configured, "") if not covered(each.path, FILLED_IN))


def tree(values: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a form or an address, nested and typed as in JSON; an empty value is not set.

    What is no number, no JSON or no parameter stays the text that it is: the API's checks have the words for it.
    """
    kinds = _kinds()
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith(PREFIX) and value:
            path = name.removeprefix(PREFIX)
            _put(nested, path.split("."), _typed(value, kinds.get(path, "text")))
    return nested


def flat(params: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, str]:
    """The reverse of `tree`: by name in a form."""
    known = _kinds()
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and f"{prefix}{name}".removeprefix(PREFIX) not in known:
            found |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = shown(value)
    return found


def shown(value: Any) -> str:
    """A value as a form's field has it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@cache
def _kinds() -> dict[str, Kind]:
    return {each.path: each.kind for each in parameters()}


def _fields(kind: type[msgspec.Struct], group: msgspec.Struct | None, prefix: str) -> Iterator[Parameter]:
    texts = docstrings(kind)
    described: Any = inspect.type_info(kind)
    for field in described.fields:
        path, default = f"{prefix}{field.name}", getattr(group, field.name, None)
        found = _single(field.type)
        if isinstance(found, inspect.StructType):
            yield from _fields(found.cls, default, f"{path}.")
        else:
            yield _parameter(path, found, default, texts.get(field.name, ""))


def _single(found: Any) -> Any:
    """Without the null of what may be missing."""
    return found.types[0] if isinstance(found, inspect.UnionType) else found


def _parameter(path: str, found: Any, default: Any, text: str) -> Parameter:
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


def _meaning(group: str) -> str:
    kind = type(getattr(Params(), group, None))
    return docstrings(Params).get(group) or (kind.__doc__ or "" if issubclass(kind, msgspec.Struct) else "")


def _typed(value: str, kind: Kind) -> Any:
    try:
        match kind:
            case "whole":
                return int(value)
            case "number":
                return _finite(float(value), value)
            case "json":
                return msgspec.json.decode(value)
    except (ValueError, msgspec.DecodeError):
        return value
    return {"true": True, "false": False}.get(value, value) if kind == "flag" else value


def _finite(number: float, text: str) -> float | str:
    return number if math.isfinite(number) else text


def _put(nested: dict[str, Any], path: list[str], value: Any) -> None:
    """What is no group stays as it is; the API refuses the longer name."""
    *groups, leaf = path
    for group in groups:
        inner = nested.setdefault(group, {})
        if not isinstance(inner, dict):
            return
        nested = inner
    nested[leaf] = value
