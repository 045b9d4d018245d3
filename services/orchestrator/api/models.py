"""Serves `/v1/models` and `/v1/plugins`."""

from typing import Annotated

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Path, Response
from sqlalchemy import RowMapping

from mathrag.errors import NotFound
from mathrag.messages import make_hint
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.probes import get_fix
from shared.models import commands
from shared.plugins import loading
from shared.settings import Settings
from shared.shapes import Kind, PluginPin, Scope, State
from shared.storage import devices
from shared.storage.jobs import list_lacking_plugins

router = APIRouter(prefix="/v1/models", tags=["catalog"])


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a job may name."""

    name: str
    driver: str
    default_for: list[str]
    """Roles that the model answers if a job names no other."""
    context: int
    """Context length in tokens."""
    parallel: int
    footprint_mib: int
    """Declared memory in MiB, which counts against the device's budget."""
    registered: bool
    """Whether the guard has registered the model."""
    digest: str | None
    version: str | None = None
    """Version of its server at registration; null if it is not registered or its server reports none."""
    warning: str | None = None
    """Known flaw of this version."""
    device: str | None = None
    """Device on which its guard loads it; null if it is not registered or needs no device."""
    resident: list[str] = []
    """Devices that hold it now."""


class ModelDetails(ModelView, frozen=True, kw_only=True):
    """A model, and the measurements of it."""

    server: str
    """Program that serves it, if its driver is `process`."""
    records: devices.ModelRecords


@route(router, "GET", "", Scope.READ, "List models", answers(list[ModelView]), name="listed")
async def list_models(deps: RequestDeps) -> Response:
    """Lists the configured models that a job may name. Addresses and keys of their servers are not shown."""
    return json(await list_views(deps))


@route(router, "GET", "/{name}", Scope.READ, "Get a model", answers(ModelDetails), refuses=(404,))
async def get(name: Annotated[str, Path(examples=["world-judge"])], deps: RequestDeps) -> Response:
    """Returns a model with its registered versions, the memory of its loads, its measured speed, and the newest jobs
    that name it.
    """
    return json(await load_details(deps, name))


async def list_views(deps: Deps) -> list[ModelView]:
    """Return every model that a job may name, by name."""
    names = sorted(deps.settings.models)
    async with deps.database.transaction() as connection:
        served = await devices.find_served(connection, names)
    return [_make_view(deps.settings, name, served.get(name)) for name in names]


async def load_details(deps: Deps, name: str) -> ModelDetails:
    """Return the model called `name`.

    Raises:
        NotFound: no such model is configured.
    """
    known = deps.settings.models
    if name not in known:
        raise NotFound(f"no model {name!r}", hint=make_hint(name, known, "list the models with `mathrag model list`"))
    async with deps.database.transaction() as connection:
        served = await devices.find_served(connection, [name])
        records = await devices.load_records(connection, name)
    view = _make_view(deps.settings, name, served.get(name))
    return ModelDetails(server=known[name].server, records=records, **msgspec.structs.asdict(view))


def _make_view(settings: Settings, name: str, row: RowMapping | None) -> ModelView:
    model = settings.models[name]
    return ModelView(
        name=name,
        driver=model.driver,
        default_for=sorted(role for role, default in settings.roles.items() if default == name),
        context=model.context,
        parallel=model.parallel,
        footprint_mib=model.footprint_mib,
        registered=row is not None,
        digest=row["digest"] if row else None,
        version=row["version"] or None if row else None,
        warning=commands.find_warning(row["backend"], row["version"]) if row else None,
        device=row["device"] if row else None,
        resident=row["resident"] if row else [],
    )


# Serves `/v1/plugins`: the extensions that other distributions provide.

plugins_router = APIRouter(prefix="/v1/plugins", tags=["catalog"])


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


@route(plugins_router, "GET", "", Scope.READ, "List plug-ins", answers(list[PluginView]), name="listed")
async def list_plugins(deps: RequestDeps) -> Response:
    """Lists the installed plug-ins by kind and name, and those that jobs wait for. Each plug-in that was not imported
    before is imported in its own process, for `plugins.import_s` at most (docs/how-to/plugins.md).
    """
    return json(await list_plugin_views(deps))


async def list_plugin_views(deps: Deps) -> list[PluginView]:
    """Return every plug-in with its state; missing ones that jobs wait for come last."""
    found = await to_thread.run_sync(loading.list_present, deps.settings.plugins)
    async with deps.database.transaction() as connection:
        lacking = await list_lacking_plugins(connection)
    jobs: dict[PluginPin, list[str]] = {}
    for each in lacking:
        jobs.setdefault(each.pin, []).append(each.name)
    messages = {each.pin: each.said for each in lacking}
    installed = {plugin.pin for plugin in found}
    missing = [
        PluginView(
            kind=Kind(pin.kind),
            name=pin.name,
            distribution=pin.distribution,
            version=pin.version,
            hash=pin.hash,
            state=State.MISSING,
            detail=messages[pin],
            fix=f"pip install {pin.distribution}=={pin.version}",
            jobs=names,
        )
        for pin, names in jobs.items()
        if pin not in installed
    ]
    present = [
        PluginView(
            kind=plugin.kind,
            name=plugin.name,
            distribution=plugin.distribution,
            version=plugin.version,
            hash=plugin.pin.hash,
            state=plugin.state,
            detail=plugin.detail,
            fix="" if plugin.state is State.READY else get_fix(plugin),
            jobs=jobs.get(plugin.pin, []),
        )
        for plugin in found
    ]
    return present + missing
