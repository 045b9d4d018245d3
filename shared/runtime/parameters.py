"""Parse job parameters strictly: an unknown parameter is refused, not ignored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.params import Params, out_of_range
from shared.contracts.plugins import Kind
from shared.errors import Invalid
from shared.pipelines import registry
from shared.plugins.loading import explain_unusable
from shared.rag.graders import get_grader, grader_names
from shared.storage.configurations import Tree, merge

FIELDS = frozenset(Params.__struct_fields__)
_AT = re.compile(r"^(?P<words>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNLISTED = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def parse_params(values: Tree, configured: Tree = MappingProxyType({})) -> Params:
    """Parse `values`, falling back to the `configured` values and then to the defaults.

    Raises:
        Invalid: an unknown parameter, a value of the wrong type or out of range; the message names it.
    """
    try:
        params = msgspec.convert(merge(configured, values), Params)
        canonical.encode(params)
    except msgspec.ValidationError as error:
        raise _to_invalid(str(error)) from error
    except UnicodeEncodeError as error:
        raise Invalid("`params`: contains a lone surrogate (half a character), which is not valid text") from error
    for path, value, rule in out_of_range(params):
        raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}")
    named = values.get("grading")
    if isinstance(named, Mapping) and "grader" in named:
        check_grader(params.grading.grader)
    return params


def check_grader(name: str, at: str = "params.grading.grader") -> None:
    """Check that there is a grader of this name.

    Raises:
        Invalid: there is none, or it is a plug-in that cannot be used; the message says why.
    """
    try:
        get_grader(name)
    except LookupError as error:
        if (unusable := explain_unusable(Kind.GRADER, name)) is not None:
            raise Invalid(f"`{at}`: {unusable}", hint="mathrag plugin list") from error
        near = suggestions.find_nearest(name, grader_names())
        raise Invalid(f"`{at}`: {error}", hint=near and f"did you mean {near!r}?") from error


def check_read(values: Tree, pipelines: Sequence[str], at: str = "params") -> None:
    """Check that each parameter is read by at least one of the pipelines.

    Unknown pipelines and parameters are refused elsewhere.

    Raises:
        Invalid: no pipeline reads it; the message names the parameter, and the hint lists what they read.
    """
    known = [registry.get(name) for name in pipelines if name in registry.names()]
    if not known:
        return
    for path in _list_known_paths(values):
        if all(each.ignores(path) for each in known):
            read = frozenset(name for each in known for name in each.reads or ())
            raise _make_unread_error(f"{at}.", path, ", ".join(sorted({each.name for each in known})), read)


def check_read_by(reader: str, values: Tree, reads: frozenset[str]) -> None:
    """Check that `reader` (such as "a search") reads each parameter: `reads` lists parameters and groups of them.

    Raises:
        Invalid: see `check_read`.
    """
    for path in _list_known_paths(values):
        if not registry.covers(path, reads):
            raise _make_unread_error("params.", path, reader, reads)


def _make_unread_error(at: str, path: str, readers: str, reads: frozenset[str]) -> Invalid:
    listed = f"parameters of {readers}: {', '.join(sorted(reads))}"
    hint = suggestions.make_hint(path, sorted(reads), listed)
    return Invalid(f"`{at}{path}`: {readers} would not read it, so it would change nothing", hint=hint)


def _list_known_paths(values: Tree) -> Iterator[str]:
    return _paths({name: value for name, value in values.items() if name.partition(".")[0] in FIELDS})


def _paths(values: Tree, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _to_invalid(message: str) -> Invalid:
    """Convert msgspec's message ("… - at `$.gate`") to one that names `params.gate`."""
    found = _AT.match(message)
    path = ".".join(filter(None, ["params", found["path"] if found else ""]))
    words = found["words"] if found else message
    if unknown := _UNKNOWN.match(words):
        known = sorted(_fields(path))
        hint = suggestions.make_hint(unknown["name"], known, f"fields of `{path}`: {', '.join(known)}")
        return Invalid(f"`{path}.{unknown['name']}`: there is no such field", hint=hint)
    if value := _UNLISTED.match(words):
        hint = f"it is one of {', '.join(_list_allowed_values(path))}"
        return Invalid(f"`{path}`: {value['value']} is none of its values", hint=hint)
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}")


def _list_allowed_values(path: str) -> list[str]:
    """Return the allowed values of an enumerated parameter, such as `params.fusion.method`."""
    group: Any = Params()
    *parents, leaf = path.split(".")[1:]
    for name in parents:
        group = getattr(group, name)
    return [value for value in get_args(get_type_hints(type(group))[leaf]) if value]


def _fields(path: str) -> tuple[str, ...]:
    """Return the field names of a parameter group, such as `params.gate`."""
    group: Any = Params()
    for name in path.split(".")[1:]:
        group = getattr(group, name)
    return tuple(group.__struct_fields__)
