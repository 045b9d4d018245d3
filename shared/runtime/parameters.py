"""Parameters of jobs as people write them, decoded strictly: a misspelt one is refused and not ignored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.params import Params, out_of_range
from shared.errors import Invalid
from shared.pipelines import registry
from shared.storage.configurations import Tree, merged

FIELDS = frozenset(Params.__struct_fields__)
_AT = re.compile(r"^(?P<words>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNLISTED = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def params_of(values: Tree, configured: Tree = MappingProxyType({})) -> Params:
    """`values` over what is `configured`, over the defaults.

    Raises:
        Invalid: an unknown parameter, a value of another type, or one out of range; the message names it.
    """
    try:
        params = msgspec.convert(merged(configured, values), Params)
        canonical.encode(params)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    except UnicodeEncodeError as error:
        raise Invalid("`params`: holds half a character (a lone surrogate), which is no text") from error
    for path, value, rule in out_of_range(params):
        raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}")
    return params


def check_read(values: Tree, pipelines: Sequence[str], at: str = "params") -> None:
    """Return if one of the pipelines reads each of the parameters.

    A pipeline or a parameter that does not exist is refused elsewhere.

    Raises:
        Invalid: none of them does; the message names the parameter, and the hint what they read.
    """
    known = [registry.get(name) for name in pipelines if name in registry.names()]
    if not known:
        return
    for path in _known_paths(values):
        if all(each.ignored(path) for each in known):
            read = frozenset(name for each in known for name in each.reads or ())
            raise _unread(f"{at}.", path, ", ".join(sorted({each.name for each in known})), read)


def check_read_by(reader: str, values: Tree, reads: frozenset[str]) -> None:
    """Return if `reader`, such as "a search", reads each of the parameters, because `reads` holds it or its group.

    Raises:
        Invalid: as for `check_read`.
    """
    for path in _known_paths(values):
        if not registry.covered(path, reads):
            raise _unread("params.", path, reader, reads)


def _unread(at: str, path: str, readers: str, reads: frozenset[str]) -> Invalid:
    listed = f"parameters of {readers}: {', '.join(sorted(reads))}"
    hint = suggestions.hint(path, sorted(reads), listed)
    return Invalid(f"`{at}{path}`: {readers} would not read it, so it would change nothing", hint=hint)


def _known_paths(values: Tree) -> Iterator[str]:
    return _paths({name: value for name, value in values.items() if name.partition(".")[0] in FIELDS})


def _paths(values: Tree, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _refused(message: str) -> Invalid:
    """msgspec says "… - at `$.gate`"; we say `params.gate`."""
    found = _AT.match(message)
    path = ".".join(filter(None, ["params", found["path"] if found else ""]))
    words = found["words"] if found else message
    if unknown := _UNKNOWN.match(words):
        known = sorted(_fields(path))
        hint = suggestions.hint(unknown["name"], known, f"fields of `{path}`: {', '.join(known)}")
        return Invalid(f"`{path}.{unknown['name']}`: there is no such field", hint=hint)
    if value := _UNLISTED.match(words):
        hint = f"it is one of {', '.join(_listed(path))}"
        return Invalid(f"`{path}`: {value['value']} is none of its values", hint=hint)
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}")


def _listed(path: str) -> list[str]:
    """The values of the parameter at a path such as `params.fusion.method`, which has a fixed list of them."""
    group: Any = Params()
    *parents, leaf = path.split(".")[1:]
    for name in parents:
        group = getattr(group, name)
    return [value for value in get_args(get_type_hints(type(group))[leaf]) if value]


def _fields(path: str) -> tuple[str, ...]:
    """Of the group of parameters at a path such as `params.gate`."""
    group: Any = Params()
    for name in path.split(".")[1:]:
        group = getattr(group, name)
    return tuple(group.__struct_fields__)
