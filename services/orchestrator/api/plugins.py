"""Serves `/v1/plugins`: the extensions that other distributions provide."""

from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.probes.plugins import get_fix
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.shapes import Kind, PluginPin, Scope, State
from shared.storage import jobs as stored_jobs

router = APIRouter(prefix="/v1/plugins", tags=["catalog"])


class PluginView(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in that is installed, or that a job needs."""

    kind: Kind
    name: str
    distribution: str
    version: str
    hash: str
    """SHA-256 in hex over the distribution's own files; empty if they cannot be read."""
    state: State
    detail: str
    """Why the plug-in cannot be used; empty if it is ready."""
    fix: str
    """What to do about it; empty if it is ready."""
    jobs: list[str]
    """Jobs that wait for the plug-in."""


PLUGIN: dict[str, Any] = {
    "kind": "pipeline", "name": "best-of-three", "distribution": "mathrag-best-of-three", "version": "0.1.0",
    "hash": "5f1c…", "state": "ready", "detail": "", "fix": "", "jobs": [],
}  # fmt: skip


@route(router, "GET", "", Scope.READ, "List plug-ins", answers(list[PluginView], [PLUGIN]), name="listed")
async def list_plugins(deps: RequestDeps) -> Response:
    """Lists the installed plug-ins by kind and name, and those that jobs wait for. Each plug-in that was not imported
    before is imported in a process of its own, for `plugins.import_s` at most (docs/how-to/plugins.md).
    """
    return json(await list_views(deps))


async def list_views(deps: Deps) -> list[PluginView]:
    """Return every plug-in with its state; missing ones that jobs wait for come last."""
    found = await to_thread.run_sync(loading.list_present, deps.settings.plugins)
    async with deps.database.transaction() as connection:
        lacking = await stored_jobs.list_lacking_plugins(connection)
    jobs: dict[PluginPin, list[str]] = {}
    for each in lacking:
        jobs.setdefault(each.pin, []).append(each.name)
    messages = {each.pin: each.said for each in lacking}
    installed = {plugin.pin for plugin in found}
    missing = [_make_missing_view(pin, messages[pin], names) for pin, names in jobs.items() if pin not in installed]
    return [*(_make_view(plugin, jobs.get(plugin.pin, [])) for plugin in found), *missing]


def _make_view(plugin: Plugin, jobs: list[str]) -> PluginView:
    fix = "" if plugin.state is State.READY else get_fix(plugin)
    return PluginView(
        kind=plugin.kind, name=plugin.name, distribution=plugin.distribution, version=plugin.version,
        hash=plugin.pin.hash, state=plugin.state, detail=plugin.detail, fix=fix, jobs=jobs,
    )  # fmt: skip


def _make_missing_view(pin: PluginPin, message: str, jobs: list[str]) -> PluginView:
    return PluginView(
        kind=Kind(pin.kind), name=pin.name, distribution=pin.distribution, version=pin.version, hash=pin.hash,
        state=State.MISSING, detail=message, fix=f"pip install {pin.distribution}=={pin.version}", jobs=jobs,
    )  # fmt: skip
