"""`/v1/pipelines`: how a job may answer its questions."""

import inspect
from functools import cache
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from shared.contracts.api_keys import Scope
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.pipelines import registry
from shared.pipelines.source import Change
from shared.runtime.price import dry_run, made_up_job

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


@route(router, "GET", "", Scope.READ, "List pipelines", answers(list[PipelineView], [PIPELINE]))
async def pipelines() -> Response:
    """What a job may ask for, by name: roles, parameters with defaults, the source's hash, and in `changed` the source
    files that were edited since the service imported them (docs/operations.md#edited-source-files).
    """
    return json(await to_thread.run_sync(_pipelines))


def _pipelines() -> list[PipelineView]:
    """In a thread, since source files are read."""
    return [_pipeline(registry.get(name)) for name in registry.offered()]


def _pipeline(registered: registry.Registered) -> PipelineView:
    module = inspect.getmodule(registered.run)
    words = registered.run.__doc__ or (module.__doc__ if module else None) or ""
    roles = _roles(registered.name)
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
def _roles(pipeline: str) -> list[str]:
    """Of the calls of a dry run: no pipeline says it of itself."""
    job = made_up_job(pipeline, Params())
    return sorted({bound.role for round_ in dry_run(job, Item(ordinal=0, question="?")) for bound in round_})
