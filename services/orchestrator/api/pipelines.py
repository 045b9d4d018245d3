"""Serves `/v1/pipelines`: the ways in which a job may answer its questions, and their parameters."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import cleandoc, getmodule
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Response
from msgspec import inspect

from mathrag.errors import NotFound
from mathrag.messages import make_hint
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from shared.fields import read_docstrings
from shared.params import MOST_CANDIDATES, Params, get_range
from shared.pipelines import registry
from shared.pipelines.binding import Bound
from shared.pipelines.source import Change
from shared.pipelines.switches import covers
from shared.rag.grading import grader_names
from shared.runtime.price import MadeUpLibrary, dry_rounds, make_placeholder_job
from shared.samples import Item
from shared.shapes import PluginPin, Scope

# The parameters of a job as the fields of a form; type, bounds, default and text are derived from `Params` itself.

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
Kind = Literal["whole", "number", "choice", "flag", "text", "lines", "names", "json"]
"""`names` are several, with commas between them."""


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
        """Return the bounds, such as "1 to 1,000"; empty if none is worth showing."""
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
    texts = read_docstrings(Params)
    kinds = {name: type(getattr(SHIPPED, name, None)) for name in groups}
    own = {name: kind.__doc__ or "" for name, kind in kinds.items() if issubclass(kind, msgspec.Struct)}
    return [
        Section(name, texts.get(name) or own.get(name, ""), tuple(found)) for name, found in groups.items() if found
    ]


def get_names(drawn: Iterable[Section]) -> set[str]:
    """Return the names of the fields in these sections."""
    return {each.name for section in drawn for each in section.parameters}


def parameters(configured: Params = SHIPPED) -> tuple[Parameter, ...]:
    """Return all parameters that a user may set, in the order of `Params`, with the defaults of `configured`."""
    return tuple(each for each in _list_fields(Params, configured, "") if not covers(each.path, FILLED_IN))


def nest(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a form or an address, nested and typed as in JSON; an empty value is not set.

    A value that does not parse as number or JSON, or that is not a parameter, stays a string, so that the API's checks
    report it.
    """
    kinds = _map_kinds()
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith(PREFIX) and value:
            path = name.removeprefix(PREFIX)
            *groups, leaf = path.split(".")
            inner: Any = nested
            for group in groups:
                inner = inner.setdefault(group, {}) if isinstance(inner, dict) else None
            # A value in the way that is not a group stays; the API refuses the longer name.
            if isinstance(inner, dict):
                inner[leaf] = _parse(value, kinds.get(path, "text"))
    return nested


def flatten(params: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, str]:
    """Return nested parameters by their names in a form: the reverse of `nest`."""
    known = _map_kinds()
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and f"{prefix}{name}".removeprefix(PREFIX) not in known:
            found |= flatten(value, f"{prefix}{name}.")
        elif value is not None:
            names = known.get(f"{prefix}{name}".removeprefix(PREFIX)) == "names" and isinstance(value, list | tuple)
            found[f"{prefix}{name}"] = ", ".join(map(str, value)) if names else format_value(value)
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
        found = field.type.types[0] if isinstance(field.type, inspect.UnionType) else field.type
        if isinstance(found, inspect.StructType):
            yield from _list_fields(found.cls, default, f"{path}.")
        else:
            yield _make_parameter(path, found, default, texts.get(field.name, ""))


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
            bounds = (found.ge if found.gt is None else found.gt, found.le)
            low, high = get_range(path, MOST_CANDIDATES) or bounds
            kind: Kind = "whole" if isinstance(found, inspect.IntType) else "number"
            return Parameter(path, kind, default, text, low=low, high=high)
        case inspect.StrType():
            return Parameter(path, "lines" if (found.max_length or 0) > LONGEST_LINE else "text", default, text)
        case inspect.VarTupleType(item_type=inspect.StrType()):
            return Parameter(path, "names", default, text)
    return Parameter(path, "json", default, text)


def _parse(value: str, kind: Kind) -> Any:
    try:
        match kind:
            case "whole":
                return int(value)
            case "number":
                number = float(value)
                return number if math.isfinite(number) else value
            case "json":
                return msgspec.json.decode(value)
            case "names":
                return [name.strip() for name in value.split(",") if name.strip()]
    except (ValueError, msgspec.DecodeError):
        return value
    return {"true": True, "false": False}.get(value, value) if kind == "flag" else value


# Serves `/v1/pipelines`: the ways in which a job may answer its questions.

router = APIRouter(prefix="/v1/pipelines", tags=["catalog"])


PARAMS: dict[str, Any] = msgspec.to_builtins(SHIPPED)


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that a job may name."""

    name: str
    """Name of the pipeline."""
    summary: str
    """Description in one sentence."""
    calibrated: bool
    """Whether a calibration runs before the samples."""
    needs_corpus: bool
    """Whether a job must name a corpus."""
    roles: list[str]
    """Roles of the calls that the pipeline makes; a job may name models for `judge` and `generate`."""
    params: Params
    """Parameters that a job may set, with their defaults. The pipeline ignores parameters that it does not read."""
    hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files at the time of the import."""
    changed: list[Change]
    """Source files that were edited after the import; a restart of the service activates them."""
    plugin: PluginPin | None = None
    """Plug-in that provides the pipeline; null if it is shipped."""


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a pipeline that do not depend on each other's replies and are answered together."""

    calls: dict[str, int]
    """Number of calls by role."""


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a job that the pipeline reads."""

    name: str
    """Name of the parameter, with levels joined by dots."""
    kind: Kind
    """Kind of the value."""
    default: Any
    """Shipped default; null if the parameter is not set."""
    choices: tuple[str, ...]
    """Allowed values; empty if any value of the kind is allowed."""
    minimum: float | None
    """Least allowed value; null if there is none."""
    maximum: float | None
    """Greatest allowed value; null if there is none."""
    meaning: str
    """Description of the parameter."""


class PipelineDetails(PipelineView, frozen=True, kw_only=True):
    """A pipeline, step by step, with the parameters that it reads."""

    about: str
    """Origin of the method, and differences of this implementation."""
    calibration: list[PipelineStep]
    """Steps for one item of the calibration, which runs before the samples; empty without a calibration."""
    steps: list[PipelineStep]
    """Steps for one question, computed with the shipped parameters and placeholder replies."""
    parameters: list[ParameterView]
    """Parameters that the pipeline reads."""


@route(
    router, "GET", "", Scope.READ, "List pipelines",
    answers(list[PipelineView], make_example(list[PipelineView], params=PARAMS)), name="listed",
)  # fmt: skip
async def list_pipelines() -> Response:
    """Lists the pipelines by name: roles, parameters with defaults, the hash of the version, and in `changed` the
    source files that were edited after the service had imported them (docs/how-to/operations.md#edited-source-files).
    """
    return json(await list_views())


@route(
    router, "GET", "/{name}", Scope.READ, "Get a pipeline",
    answers(PipelineDetails, make_example(PipelineDetails, params=PARAMS)), refuses=(404,),
)  # fmt: skip
async def get(name: Annotated[str, Path(examples=["mathrag-gate"])]) -> Response:
    """Returns a pipeline's calls step by step, and the parameters that it reads, with defaults, bounds and texts."""
    return json(await get_details(name))


async def list_views() -> list[PipelineView]:
    """Return every pipeline that a job may name. Call it in a thread: it reads source files."""
    return await to_thread.run_sync(lambda: [_make_view(registry.get(name)) for name in registry.list_offered()])


async def get_details(name: str) -> PipelineDetails:
    """Return the pipeline called `name`.

    Raises:
        NotFound: it does not exist.
    """
    if name not in registry.list_offered():
        hint = make_hint(name, registry.list_offered(), "list the pipelines with `mathrag pipeline list`")
        raise NotFound(f"no pipeline {name!r}", hint=hint)
    return await to_thread.run_sync(_make_details, registry.get(name))


def _make_details(registered: registry.Registered) -> PipelineDetails:
    module = getmodule(registered.run)
    calibration, steps = _list_steps(registered.name)
    return PipelineDetails(
        about=cleandoc((module and module.__doc__) or ""),
        calibration=calibration,
        steps=steps,
        parameters=[
            ParameterView(
                name=each.path,
                kind=each.kind,
                default=each.default,
                choices=each.choices,
                minimum=each.low,
                maximum=each.high,
                meaning=each.help,
            )
            for each in parameters()
            if not registered.ignores(each.path)
        ],
        **msgspec.structs.asdict(_make_view(registered)),
    )


def _make_view(registered: registry.Registered) -> PipelineView:
    module = getmodule(registered.run)
    words = registered.run.__doc__ or (module.__doc__ if module else None) or ""
    calibration, steps = _list_steps(registered.name)
    roles = sorted({role for step in (*calibration, *steps) for role in step.calls})
    return PipelineView(
        name=registered.name,
        needs_corpus="retrieve" in roles,
        roles=roles,
        params=Params(),
        summary=words.strip().partition("\n")[0],
        calibrated=registered.prepare is not None,
        hash=registry.pipeline_hash(registered.name),
        changed=registry.list_changed_files(registered.name),
        plugin=registered.plugin,
    )


@cache
def _list_steps(pipeline: str) -> tuple[list[PipelineStep], list[PipelineStep]]:
    """Return the calls of a dry run (calibration, sample), because pipelines do not declare their calls."""
    item, library = Item(ordinal=0, question="?"), MadeUpLibrary()
    job, calibration = make_placeholder_job(pipeline, Params()), []
    if job.find_pipeline().prepare is not None:
        prepare = job.prepare([item], library)
        calibration = [_make_step(round_) for round_ in dry_rounds(job, prepare)]
        job = msgspec.structs.replace(job, prepared=prepare.result)
    return calibration, [_make_step(round_) for round_ in dry_rounds(job, job.start(item, 0, library))]


def _make_step(calls: Sequence[Bound]) -> PipelineStep:
    return PipelineStep(calls=dict(sorted(Counter(call.role for call in calls).items())))
