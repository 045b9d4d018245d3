"""Serves `/v1/pipelines`: the ways in which a job may answer its questions."""

import inspect
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Response

from services.orchestrator.api import parameters
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from shared import suggestions
from shared.errors import NotFound
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.binding import Bound
from shared.pipelines.source import Change
from shared.runtime.price import MadeUpLibrary, dry_rounds, make_placeholder_job
from shared.samples import Item
from shared.shapes import PluginPin, Scope

router = APIRouter(prefix="/v1/pipelines", tags=["catalog"])

PARAMS: dict[str, Any] = msgspec.to_builtins(Params())


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that a job may name."""

    name: str
    summary: str
    calibrated: bool
    """Whether a calibration runs before the samples."""
    needs_corpus: bool
    roles: list[str]
    """Roles of the calls that it makes; `judge` and `generate` are answered by models, which a job may name."""
    params: Params
    """Parameters that a job may set, with their defaults; a pipeline ignores those that do not concern it."""
    hash: str
    """Hash of its name and version; of a plug-in, of its files as they were when the service imported them."""
    changed: list[Change]
    """Source files that were edited after the import; they run after a restart of the service."""
    plugin: PluginPin | None = None
    """Plug-in that provides it; null if it is shipped."""


PIPELINE: dict[str, Any] = {
    "name": "mathrag-gate", "summary": "Retrieve from both indexes, …", "calibrated": True, "needs_corpus": True,
    "roles": ["generate", "judge", "retrieve"], "params": PARAMS, "hash": "77ab…", "changed": [], "plugin": None,
}  # fmt: skip


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a pipeline that do not depend on each other's replies and are answered together."""

    calls: dict[str, int]
    """Number of calls by role."""


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a job that the pipeline reads."""

    name: str
    kind: parameters.Kind
    default: Any
    """Shipped default; null if the parameter is not set."""
    choices: tuple[str, ...]
    """Allowed values; empty if the parameter is not one of a list."""
    minimum: float | None
    maximum: float | None
    meaning: str


class PipelineDetails(PipelineView, frozen=True, kw_only=True):
    """A pipeline, step by step, with the parameters that it reads."""

    about: str
    """Description from its source: where the method comes from, and how this implementation differs."""
    calibration: list[PipelineStep]
    """Steps for one item of the calibration, which runs before the samples; empty if there is none."""
    steps: list[PipelineStep]
    """Steps for one question with the shipped parameters and made-up replies."""
    parameters: list[ParameterView]


STEPS: list[dict[str, Any]] = [{"calls": {"retrieve": 2}}, {"calls": {"judge": 10}}, {"calls": {"generate": 1}}]
DETAILS: dict[str, Any] = {
    **PIPELINE, "about": "mathrag-gate: hybrid retrieval, reranked by reasoning quality, …", "calibration": STEPS[:2],
    "steps": STEPS,
    "parameters": [{
        "name": "gate.tau", "kind": "number", "default": 0.45, "choices": [], "minimum": -1, "maximum": 1,
        "meaning": "Correlation above which rules replace the judge.",
    }],
}  # fmt: skip


@route(router, "GET", "", Scope.READ, "List pipelines", answers(list[PipelineView], [PIPELINE]), name="listed")
async def list_pipelines() -> Response:
    """Lists the pipelines by name: roles, parameters with defaults, the hash of the version, and in `changed` the
    source files that were edited after the service had imported them (docs/how-to/operations.md#edited-source-files).
    """
    return json(await list_views())


@route(router, "GET", "/{name}", Scope.READ, "Get a pipeline", answers(PipelineDetails, DETAILS), refuses=(404,))
async def get(name: Annotated[str, Path(examples=["mathrag-gate"])]) -> Response:
    """Returns a pipeline's calls step by step, and the parameters that it reads, with defaults, bounds and texts."""
    return json(await get_details(name))


async def list_views() -> list[PipelineView]:
    """Return every pipeline that a job may name. Call it in a thread: it reads source files."""
    return await to_thread.run_sync(lambda: [_make_view(registry.get(name)) for name in registry.list_offered()])


async def get_details(name: str) -> PipelineDetails:
    """Return the pipeline called `name`.

    Raises:
        NotFound: there is none.
    """
    if name not in registry.list_offered():
        hint = suggestions.make_hint(name, registry.list_offered(), "list the pipelines with `mathrag pipeline list`")
        raise NotFound(f"no pipeline {name!r}", hint=hint)
    return await to_thread.run_sync(_make_details, registry.get(name))


def _make_details(registered: registry.Registered) -> PipelineDetails:
    module = inspect.getmodule(registered.run)
    calibration, steps = _list_steps(registered.name)
    return PipelineDetails(
        about=inspect.cleandoc((module and module.__doc__) or ""),
        calibration=calibration,
        steps=steps,
        parameters=[
            _make_parameter_view(each) for each in parameters.parameters() if not registered.ignores(each.path)
        ],
        **msgspec.structs.asdict(_make_view(registered)),
    )


def _make_parameter_view(found: parameters.Parameter) -> ParameterView:
    return ParameterView(
        name=found.path, kind=found.kind, default=found.default, choices=found.choices, minimum=found.low,
        maximum=found.high, meaning=found.help,
    )  # fmt: skip


def _make_view(registered: registry.Registered) -> PipelineView:
    module = inspect.getmodule(registered.run)
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
