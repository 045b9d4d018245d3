"""Parse job parameters strictly: an unknown parameter is refused, not ignored."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from mathrag.errors import Invalid
from mathrag.messages import make_hint
from shared import canonical
from shared.params import MOST_CANDIDATES, CragParams, MetricsParams, Params, get_range, out_of_range
from shared.pipelines import registry
from shared.pipelines.switches import Switch, covers, find_closed, get_values
from shared.plugins.loading import explain_unusable
from shared.rag.answer_metrics import get_metric, list_metrics
from shared.rag.crag import choose_thresholds
from shared.rag.grading import get_grader, grader_names
from shared.shapes import Kind
from shared.storage.configurations import Tree, merge

FIELDS = frozenset(Params.__struct_fields__)
LONGEST_QUOTE = 60
"""Characters of a value that a message quotes."""
_UNLISTED = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def parse_params(values: Tree, configured: Tree = MappingProxyType({})) -> Params:
    """Parse `values`, falling back to the `configured` values and then to the defaults.

    Raises:
        Invalid: an unknown parameter, a value of the wrong type or out of range; the message names it.
    """
    tree = merge(configured, values)
    try:
        params = msgspec.convert(tree, Params)
        canonical.encode(params)
    except msgspec.ValidationError as error:
        raise _to_invalid(error, tree) from error
    except UnicodeEncodeError as error:
        problem = "`params`: contains a lone surrogate (half a character), which is not valid text"
        raise Invalid(problem, hint="write the whole character") from error
    for path, value, rule in out_of_range(params):
        # The configuration may have been accepted by a release without this range, and jobs must continue.
        if values and not _is_configured(path, values, configured):
            raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}", hint=_suggest_value(path, value))
    check_thresholds(params.crag)
    named = values.get("grading")
    if isinstance(named, Mapping) and "grader" in named:
        check_grader(params.grading.grader)
    return params


def _is_configured(path: str, values: Tree, configured: Tree) -> bool:
    """Tell whether the configuration alone has the parameter out of its range."""
    if not configured or path in _paths(values):
        return False
    return any(path == found for found, _, _ in out_of_range(msgspec.convert(configured, Params)))


def _suggest_value(path: str, value: Any) -> str:
    if path == "context_size":
        beyond = "choose fewer, or raise `candidates`"
        return beyond if value > 0 else "for answers without documents, choose the pipeline `closed-book`"
    return f"choose such a value, or leave `{path}` out for its default"


def check_grader(name: str, at: str = "params.grading.grader") -> None:
    """Check that there is a grader of this name.

    Raises:
        Invalid: it does not exist, or is a plug-in that cannot be used; the message has the reason.
    """
    try:
        get_grader(name)
    except LookupError as error:
        if (unusable := explain_unusable(Kind.GRADER, name)) is not None:
            raise Invalid(f"`{at}`: {unusable}", hint="mathrag plugin list") from error
        raise Invalid(f"`{at}`: {error}", hint=make_hint(name, grader_names(), "choose one of these")) from error


def check_metric_names(metrics: MetricsParams, at: str = "params.metrics.names") -> None:
    """Check that there is each of the metrics.

    Raises:
        Invalid: it does not exist, or is a plug-in that cannot be used; the message has the reason.
    """
    for name in metrics.names:
        try:
            get_metric(name)
        except LookupError as error:
            if (unusable := explain_unusable(Kind.METRIC, name)) is not None:
                raise Invalid(f"`{at}`: {unusable}", hint="mathrag plugin list") from error
            raise Invalid(f"`{at}`: {error}", hint=make_hint(name, list_metrics(), "choose one of these")) from error


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
        unasked: those of `reads` that it does not read this time, each with its condition.

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


def _to_invalid(error: msgspec.ValidationError, tree: Tree) -> Invalid:
    words, at = split_message(error)
    names = at.split(".") if at else []
    path = ".".join(["params", *names])
    if (unknown := find_unknown_field(words)) is not None:
        known = sorted(reduce(getattr, names, Params()).__struct_fields__)
        hint = make_hint(unknown, known, f"choose one of the fields of `{path}`: {', '.join(known)}")
        return Invalid(f"`{path}.{unknown}`: there is no such field", hint=hint)
    if value := _UNLISTED.match(words):
        group = type(reduce(getattr, names[:-1], Params()))
        values = ", ".join([value for value in get_args(get_type_hints(group)[names[-1]]) if value])
        return Invalid(f"`{path}`: {value['value']} is not one of its values", hint=f"choose one of {values}")
    given: Any = tree
    for name in names:  # the path of a member, such as `terms[...]`, ends at its container
        given = given.get(name) if isinstance(given, Mapping) else given
    if names == ["grading", "grader"] and isinstance(given, str):
        check_grader(given)  # says which there are
    if not isinstance(given, Mapping) and (expected := _describe_expected(names)):
        hint = f"choose such a value, or leave `{'.'.join(names)}` out for its default"
        return Invalid(f"`{path}`: must be {expected}, not {_quote(given)}", hint=hint)
    hint = f"correct it as docs/reference/parameters.md says, or leave `{'.'.join(names)}` out for its default"
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}", hint=hint)


def _describe_expected(names: Sequence[str]) -> str | None:
    """Describe the values of a parameter that is a group, a number, a flag or any text; None for all others."""
    kind: Any = inspect.type_info(Params)
    for name in names:
        fields = {each.name: each.type for each in getattr(kind, "fields", ())}
        kind = fields.get(name)
        kind = kind.types[0] if isinstance(kind, inspect.UnionType) else kind
    match kind:
        case inspect.StructType():
            names_of = ", ".join(each.name for each in kind.fields)
            return f"a group of {names_of} (such as `{'.'.join(names)}.{kind.fields[0].name}`)" if names else None
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(pattern=None):
            return f"a text of at most {kind.max_length} characters" if kind.max_length else "a text"
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            low, high = get_range(".".join(names), MOST_CANDIDATES) or (kind.ge, kind.le)
            least = f"between {low} and" if kind.gt is None else f"above {kind.gt}, at most"
            return f"{number} {least} {high}"
    return None


def _quote(value: Any) -> str:
    """Return the value as JSON, for a message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
