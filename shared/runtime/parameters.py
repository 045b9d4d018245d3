"""Parse job parameters strictly: an unknown parameter is refused, not ignored."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec

from shared import canonical
from shared.errors import Invalid
from shared.messages import find_nearest, make_hint
from shared.params import CragParams, Params, out_of_range
from shared.pipelines import registry
from shared.pipelines.switches import Switch, covers, find_closed, get_values
from shared.plugins.loading import explain_unusable
from shared.rag.crag import choose_thresholds
from shared.rag.grading import get_grader, grader_names
from shared.shapes import Kind
from shared.storage.configurations import Tree, merge

FIELDS = frozenset(Params.__struct_fields__)
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
        raise _to_invalid(error) from error
    except UnicodeEncodeError as error:
        raise Invalid("`params`: contains a lone surrogate (half a character), which is not valid text") from error
    for path, value, rule in out_of_range(params):
        raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}")
    check_thresholds(params.crag)
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
        near = find_nearest(name, grader_names())
        raise Invalid(f"`{at}`: {error}", hint=near and f"did you mean {near!r}?") from error


def check_grading(given: Collection[str], params: Params) -> None:
    """Check that the grader reads each of the `given` parameters of grading; "" is `math`, once the dataset is known.

    Raises:
        Invalid: it does not; the message names the parameter and the grader.
    """
    grading = msgspec.structs.replace(params.grading, grader=params.grading.grader or "math")
    value_of = get_values(msgspec.structs.replace(params, grading=grading))
    for path in sorted(given):
        if (switch := find_closed(path, ("grading",), value_of)) is not None:
            raise _make_closed_error(f"params.{path}", switch, value_of)


def check_thresholds(crag: CragParams) -> None:
    """Check that no score is both correct and incorrect: a list would be called correct below the lower threshold.

    Thresholds that a job has yet to calibrate are checked when it is drafted.

    Raises:
        Invalid: the upper threshold is below the lower one, of which one is the evaluator's default or calibrated.
    """
    if crag.thresholds == "calibrated" and crag.calibrated is None:
        return
    upper, lower = choose_thresholds(crag.evaluator, crag)
    if upper is None or lower is None or upper >= lower:
        return
    kind = "calibrated" if crag.thresholds == "calibrated" else f"by default for {crag.evaluator}"
    own, other = ("upper", f"lower` is {lower}") if crag.lower is None else ("lower", f"upper` is {upper}")
    problem = f"`params.crag.{own}`: {getattr(crag, own)} contradicts the other threshold: `crag.{other} {kind}"
    raise Invalid(problem, hint="set both, `crag.lower` to no more than `crag.upper`")


def check_read(values: Tree, cells: Sequence[tuple[str, Params]], at: str = "params") -> None:
    """Check that each parameter is read by at least one of the cells: pipelines, each with all its parameters.

    Unknown pipelines and parameters are refused elsewhere.

    Raises:
        Invalid: no pipeline reads it, or another parameter keeps all of them from it; the message names both, and the
            hint says what to do.
    """
    known = [(registry.get(name), get_values(params)) for name, params in cells if name in registry.names()]
    if not known:
        return
    for path in list_known_paths(values):
        readers = [(each, value_of) for each, value_of in known if not each.ignores(path)]
        if not readers:
            read = frozenset(name for each, _ in known for name in each.reads or ())
            raise _make_unread_error(f"{at}.", path, ", ".join(sorted({each.name for each, _ in known})), read)
        closed = [(each.find_closed(path, value_of), value_of) for each, value_of in readers]
        switch, value_of = closed[0]
        if switch is not None and all(each for each, _ in closed):
            raise _make_closed_error(f"{at}.{path}", switch, value_of)


def check_read_by(
    reader: str, values: Tree, reads: Collection[str], params: Params, unasked: Mapping[str, str]
) -> None:
    """Check that `reader` reads each parameter.

    Args:
        reader: who reads, such as "a search".
        values: the given parameters.
        reads: the parameters, and groups of them, that it reads.
        params: the values of all parameters.
        unasked: those of `reads` that it does not read this time, each with what it would need.

    Raises:
        Invalid: see `check_read`.
    """
    value_of = get_values(params)
    for path in list_known_paths(values):
        if not covers(path, reads):
            raise _make_unread_error("params.", path, reader, reads)
        if (needed := next((why for name, why in unasked.items() if covers(path, (name,))), None)) is not None:
            problem = f"`params.{path}`: {reader} reads it only if {needed}, so it would change nothing"
            raise Invalid(problem, hint="leave it out, or ask for the part that reads it")
        if (switch := find_closed(path, reads, value_of)) is not None:
            raise _make_closed_error(f"params.{path}", switch, value_of)


def _make_closed_error(at: str, switch: Switch, value_of: Callable[[str], Any]) -> Invalid:
    """Make the refusal of the parameter `at`, which `switch` keeps from being read."""
    why = " and ".join(f"`{each}` is {msgspec.json.encode(value_of(each)).decode()}" for each in switch.by)
    change = " or ".join(f"`{each}`" for each in switch.by)
    return Invalid(
        f"`{at}`: is not read while {why}, so it would change nothing", hint=f"leave it out, or change {change}"
    )


def _make_unread_error(at: str, path: str, readers: str, reads: Collection[str]) -> Invalid:
    listed = f"parameters of {readers}: {', '.join(sorted(reads))}"
    hint = make_hint(path, sorted(reads), listed)
    return Invalid(f"`{at}{path}`: {readers} would not read it, so it would change nothing", hint=hint)


def list_known_paths(values: Tree) -> Iterator[str]:
    """Yield the path of each given parameter; those that do not exist are refused elsewhere."""
    return _paths({name: value for name, value in values.items() if name.partition(".")[0] in FIELDS})


def _paths(values: Tree, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def split_message(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split msgspec's message ("… - at `$.gate.tau`") into its words and the path; "" for the value as a whole."""
    words, at, path = str(error).rpartition(" - at `$")
    return (words, path.removeprefix(".").removesuffix("`")) if at else (path, "")


def find_unknown_field(words: str) -> str | None:
    """Return the field that msgspec calls unknown, if it does."""
    found = _UNKNOWN.match(words)
    return None if found is None else found["name"]


def _to_invalid(error: msgspec.ValidationError) -> Invalid:
    words, at = split_message(error)
    names = at.split(".") if at else []
    path = ".".join(["params", *names])
    if (unknown := find_unknown_field(words)) is not None:
        known = sorted(reduce(getattr, names, Params()).__struct_fields__)
        hint = make_hint(unknown, known, f"fields of `{path}`: {', '.join(known)}")
        return Invalid(f"`{path}.{unknown}`: there is no such field", hint=hint)
    if value := _UNLISTED.match(words):
        group = type(reduce(getattr, names[:-1], Params()))
        hint = f"it is one of {', '.join([value for value in get_args(get_type_hints(group)[names[-1]]) if value])}"
        return Invalid(f"`{path}`: {value['value']} is none of its values", hint=hint)
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}")
