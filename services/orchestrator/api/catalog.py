"""`/v1/pipelines` and `/v1/models`: what a job may ask for."""

import inspect
from functools import cache
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response
from sqlalchemy import Row, text

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.models import known_versions
from shared.pipelines import registry
from shared.pipelines.source import Change
from shared.runtime.price import dry_run, made_up_job
from shared.settings import Settings

router = APIRouter(prefix="/v1", tags=["catalog"])
REGISTERED = text("""
    SELECT DISTINCT ON (name) name, backend, version, digest FROM models WHERE served AND name = ANY(:names)
    ORDER BY name, registered_at DESC""")


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


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a job may name."""

    name: str
    driver: str
    default_for: list[str]
    """Roles that it answers when a job does not name one."""
    context: int
    """Tokens."""
    parallel: int
    footprint_mib: int
    """Declared; held against the device's budget."""
    registered: bool
    """The guard knows it."""
    digest: str | None
    version: str | None = None
    """Of its server, as registered; null: it is not, or its server names none."""
    warning: str | None = None
    """What is known against this version."""


PIPELINE: dict[str, Any] = {
    "name": "mathrag-gate", "summary": "Retrieve from both indexes, …", "calibrated": True, "needs_corpus": True,
    "roles": ["generate", "judge", "retrieve"], "params": PARAMS, "hash": "77ab…", "changed": [],
}  # fmt: skip


@route(router, "GET", "/pipelines", Scope.READ, "List pipelines", answers(list[PipelineView], [PIPELINE]))
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


MODEL: dict[str, Any] = {
    "name": "world-judge", "driver": "process", "default_for": ["judge"], "context": 1024, "parallel": 8,
    "footprint_mib": 96, "registered": True, "digest": "a2d1…", "version": "0.2.2", "warning": None,
}  # fmt: skip


@route(router, "GET", "/models", Scope.READ, "List models", answers(list[ModelView], [MODEL]))
async def models(deps: RequestDeps) -> Response:
    """Those that a job may name, as configured; addresses and keys are the operator's and not shown."""
    names = sorted(deps.settings.models)
    async with deps.database.transaction() as connection:
        registered = {row.name: row for row in await connection.execute(REGISTERED, {"names": names})}
    return json([_model(deps.settings, name, registered.get(name)) for name in names])


def _model(settings: Settings, name: str, row: Row[Any] | None) -> ModelView:
    model = settings.models[name]
    return ModelView(
        name=name,
        driver=model.driver,
        default_for=sorted(role for role, default in settings.roles.items() if default == name),
        context=model.context,
        parallel=model.parallel,
        footprint_mib=model.footprint_mib,
        registered=row is not None,
        digest=row.digest if row else None,
        version=row.version or None if row else None,
        warning=known_versions.warning(row.backend, row.version) if row else None,
    )
