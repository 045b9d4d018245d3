"""`/v1/pipelines`: how a job may answer its questions."""

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
from shared.contracts.api_keys import Scope
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import NotFound
from shared.pipelines import registry
from shared.pipelines.binding import Bound
from shared.pipelines.source import Change
from shared.runtime.price import MadeUp, dry_rounds, made_up_job

router = APIRouter(prefix="/v1/pipelines", tags=["catalog"])

PARAMS: dict[str, Any] = msgspec.to_builtins(Params())


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that a job may name."""

    name: str
    summary: str
    calibrated: bool
    """A calibration runs before its samples."""
    needs_corpus: bool
    roles: list[str]
    """Of the calls that it makes; `judge` and `generate` are answered by models, which a job may name."""
    params: Params
    """What a job may set, with the defaults; a pipeline ignores what does not concern it."""
    hash: str
    """Of the sources that decide what it does, as they were when the service imported them."""
    changed: list[Change]
    """Source files that were edited since: a restart of the service runs them."""


PIPELINE: dict[str, Any] = {
    "name": "mathrag-gate", "summary": "Retrieve from both indexes, …", "calibrated": True, "needs_corpus": True,
    "roles": ["generate", "judge", "retrieve"], "params": PARAMS, "hash": "77ab…", "changed": [],
}  # fmt: skip


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that wait for each other's replies no longer: they are answered together."""

    calls: dict[str, int]
    """By role, how many."""


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a job that the pipeline reads."""

    name: str
    kind: parameters.Kind
    default: Any
    """As shipped; null: it is not set."""
    choices: tuple[str, ...]
    """Empty: it is not one of a list."""
    minimum: float | None
    maximum: float | None
    meaning: str


class PipelineDetails(PipelineView, frozen=True, kw_only=True):
    """A pipeline, step by step, with the parameters that it reads."""

    about: str
    """What its source says of it: where it comes from, and what is different here."""
    calibration: list[PipelineStep]
    """Of one item, before the samples; empty: there is none."""
    steps: list[PipelineStep]
    """Of one question with the shipped parameters, on made-up replies."""
    parameters: list[ParameterView]


STEPS: list[dict[str, Any]] = [{"calls": {"retrieve": 2}}, {"calls": {"judge": 10}}, {"calls": {"generate": 1}}]
DETAILS: dict[str, Any] = {
    **PIPELINE, "about": "mathrag-gate: hybrid retrieval, reranked by reasoning quality, …", "calibration": STEPS[:2],
    "steps": STEPS,
    "parameters": [{
        "name": "gate.tau", "kind": "number", "default": 0.45, "choices": [], "minimum": -1, "maximum": 1,
        "meaning": "Rules stand in for the judge above this correlation.",
    }],
}  # fmt: skip


@route(router, "GET", "", Scope.READ, "List pipelines", answers(list[PipelineView], [PIPELINE]))
async def listed() -> Response:
    """What a job may ask for, by name: roles, parameters with defaults, the source's hash, and in `changed` the source
    files that were edited since the service imported them (docs/operations.md#edited-source-files).
    """
    return json(await views())


@route(router, "GET", "/{name}", Scope.READ, "Get a pipeline", answers(PipelineDetails, DETAILS), refuses=(404,))
async def get(name: Annotated[str, Path(examples=["mathrag-gate"])]) -> Response:
    """Its calls step by step, and the parameters that it reads, with defaults, bounds and meaning."""
    return json(await details(name))


async def views() -> list[PipelineView]:
    """Every pipeline that a job may name; in a thread, since source files are read."""
    return await to_thread.run_sync(lambda: [_view(registry.get(name)) for name in registry.offered()])


async def details(name: str) -> PipelineDetails:
    """The pipeline called `name`.

    Raises:
        NotFound: there is none.
    """
    if name not in registry.offered():
        hint = suggestions.hint(name, registry.offered(), "mathrag pipeline list")
        raise NotFound(f"no pipeline {name!r}", hint=hint)
    return await to_thread.run_sync(_details, registry.get(name))


def _details(registered: registry.Registered) -> PipelineDetails:
    module = inspect.getmodule(registered.run)
    calibration, steps = _steps(registered.name)
    return PipelineDetails(
        about=inspect.cleandoc((module and module.__doc__) or ""),
        calibration=calibration,
        steps=steps,
        parameters=[_parameter(each) for each in parameters.parameters() if not registered.ignored(each.path)],
        **msgspec.structs.asdict(_view(registered)),
    )


def _parameter(found: parameters.Parameter) -> ParameterView:
    return ParameterView(
        name=found.path, kind=found.kind, default=found.default, choices=found.choices, minimum=found.low,
        maximum=found.high, meaning=found.help,
    )  # fmt: skip


def _view(registered: registry.Registered) -> PipelineView:
    module = inspect.getmodule(registered.run)
    words = registered.run.__doc__ or (module.__doc__ if module else None) or ""
    calibration, steps = _steps(registered.name)
    roles = sorted({role for step in (*calibration, *steps) for role in step.calls})
    return PipelineView(
        name=registered.name,
        needs_corpus="retrieve" in roles,
        roles=roles,
        params=Params(),
        summary=words.strip().partition("\n")[0],
        calibrated=registered.prepare is not None,
        hash=registry.pipeline_hash(registered.name),
        changed=registry.changed_files(registered.name),
    )


@cache
def _steps(pipeline: str) -> tuple[list[PipelineStep], list[PipelineStep]]:
    """The calls of a dry run, of the calibration and of a sample: no pipeline says them of itself."""
    item, library = Item(ordinal=0, question="?"), MadeUp()
    job, calibration = made_up_job(pipeline, Params()), []
    if job.installed().prepare is not None:
        prepare = job.prepare([item], library)
        calibration = [_step(round_) for round_ in dry_rounds(job, prepare)]
        job = msgspec.structs.replace(job, prepared=prepare.result)
    return calibration, [_step(round_) for round_ in dry_rounds(job, job.start(item, 0, library))]


def _step(calls: Sequence[Bound]) -> PipelineStep:
    return PipelineStep(calls=dict(sorted(Counter(call.role for call in calls).items())))
