"""Serves `/v1/configuration` and `/v1/settings`."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import NotFound, TooLarge
from mathrag.messages import HIDDEN, redact
from services.orchestrator.access.identity import Actor
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import (
    UNCHANGED,
    Limit,
    RequiredVersions,
    Seen,
    answers,
    json,
    respond_with_tag,
    route,
)
from services.orchestrator.deps import RequestDeps
from shared import canonical
from shared.fields import WHOLE, describe_field, find_group
from shared.pages.formatting import ValueDifference, compare_trees
from shared.runtime.parameters import parse_params
from shared.settings import Device, Model, Settings
from shared.shapes import Scope
from shared.storage import configurations
from shared.storage.configurations import Configuration
from shared.storage.database import DEFAULT, LARGEST_KEY, Database, Page

router = APIRouter(prefix="/v1/configuration", tags=["configuration"])

CONFIGURATION = answers(Configuration)
MOST_BYTES = 64 << 10
"""Upper bound of the parameters, as JSON: every job, search and chat reads them."""
Version = Annotated[
    int,
    Query(ge=0, le=LARGEST_KEY, examples=[3], description="Version of the configuration; 0 is the shipped defaults."),
]


class ConfigurationChange(BaseModel):
    """Parameters to change from the next request on. Those that are left out keep their value; null removes one."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("ConfigurationChange")},
    )

    params: dict[str, Any]
    """Parameters, nested as in a job."""


class Restoration(BaseModel):
    """The version to restore."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, strict=True, json_schema_extra={"example": {"version": 2}}
    )

    version: Annotated[int, Field(ge=0, le=LARGEST_KEY), WHOLE]
    """Number of the version; 0 is the shipped defaults."""


class ConfigurationDifferences(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of the configuration and the differences between them."""

    left: Configuration
    """The left version."""
    right: Configuration
    """The right version."""
    differences: list[ValueDifference]
    """Differences by parameter name."""


@route(router, "GET", "", Scope.READ, "Get the configuration", CONFIGURATION | UNCHANGED)
async def get(deps: RequestDeps, seen: Seen) -> Response:
    """Returns the parameters that apply to jobs, searches and chats that do not set them
    (docs/how-to/api.md#configuration). The version is 0 before the first change. Answers 304 if nothing has changed.
    """
    found = await configurations.load_newest(deps.database)
    return respond_with_tag(found, version=found.version, seen=seen)


@route(router, "PATCH", "", Scope.OPERATE, "Change the configuration", CONFIGURATION, refuses=(412, 428))
async def change(request: ConfigurationChange, deps: RequestDeps, actor: Actor, versions: RequiredVersions) -> Response:
    """Changes the configuration from the next request on, in every process of the API. Jobs that were accepted
    earlier keep their parameters (docs/how-to/api.md#configuration). Requires `If-Match`: another version answers
    412, a missing header 428 (docs/how-to/api.md#tags).

    If no job could run with the parameters, the whole change is refused and the problem names the field. Every
    version is kept with the name of its author.
    """
    changed = await change_configuration(deps.database, actor, versions, request.params)
    return respond_with_tag(changed, version=changed.version)


@route(router, "POST", "/restore", Scope.OPERATE, "Restore a configuration", CONFIGURATION, refuses=(404, 412, 428))
async def restore(request: Restoration, deps: RequestDeps, actor: Actor, versions: RequiredVersions) -> Response:
    """Creates a new version with the contents of an older one; 0 restores the shipped defaults. Requires
    `If-Match`, as a change does. A parameter that this release no longer has is refused, and the problem names it.
    """
    restored = await restore_configuration(deps.database, actor, versions, request.version)
    return respond_with_tag(restored, version=restored.version)


async def change_configuration(
    database: Database, actor: str, seen: Collection[int] | None, params: dict[str, Any]
) -> Configuration:
    """Return the configuration after `actor` has put `params` on top of the current one.

    Raises:
        PreconditionFailed: the current version is not in `seen`.
        Invalid: no job could have these parameters.
    """
    async with database.transaction() as connection:
        found = await configurations.find_newest(connection)
        wanted = configurations.prune(configurations.merge(found.params, params))
        return await _follow(connection, actor, seen, found, wanted)


async def restore_configuration(
    database: Database, actor: str, seen: Collection[int] | None, version: int
) -> Configuration:
    """Return the configuration after `actor` has replaced the current one with the contents of `version`.

    Raises:
        NotFound: the version does not exist.
        PreconditionFailed, Invalid: as `changed_by` raises them.
    """
    (wanted,) = await load_versions(database, version)
    async with database.transaction() as connection:
        found = await configurations.find_newest(connection)
        return await _follow(connection, actor, seen, found, wanted.params)


async def _follow(
    connection: AsyncConnection, actor: str, seen: Collection[int] | None, found: Configuration, params: dict[str, Any]
) -> Configuration:
    configurations.check_version(found, seen)
    if (size := len(canonical.encode(params))) > MOST_BYTES:
        raise TooLarge(
            f"the configuration would have {size} bytes, more than {MOST_BYTES}",
            hint="remove parameters that jobs do not need",
        )
    parse_params(params)
    await configurations.insert_next(connection, actor, found, params)
    return await configurations.find_newest(connection)


async def load_versions(database: Database, *versions: int) -> list[Configuration]:
    """Return these versions, in this order.

    Raises:
        NotFound: one of them does not exist.
    """
    found = await configurations.load_versions(database, versions)
    for version in versions:
        if version not in found:
            hint = "list the versions with `mathrag config history` or GET /v1/configuration/history"
            raise NotFound(f"the configuration has no version {version}", hint=hint)
    return [found[version] for version in versions]


@route(
    router, "GET", "/differences", Scope.READ, "Compare two configurations",
    answers(ConfigurationDifferences), refuses=(404,),
)  # fmt: skip
async def compare(deps: RequestDeps, left: Version, right: Version) -> Response:
    """Returns the added, removed and changed parameters between two versions; version 0 is the shipped defaults."""
    return json(await compare_versions(deps.database, left, right))


async def compare_versions(database: Database, left: int, right: int) -> ConfigurationDifferences:
    """Return the differences between two versions.

    Raises:
        NotFound: one of them does not exist.
    """
    before, after = await load_versions(database, left, right)
    return ConfigurationDifferences(left=before, right=after, differences=compare_trees(before.params, after.params))


@route(router, "GET", "/history", Scope.READ, "List configurations", answers(Page[Configuration]))
async def history(deps: RequestDeps, limit: Limit = DEFAULT, cursor: str | None = None) -> Response:
    """Lists every version, newest first, with its author, time and parameters."""
    return json(await configurations.list_versions(deps.database, limit, cursor))


# Serves `/v1/settings`: the settings that this process was started with, without secrets.

settings_router = APIRouter(prefix="/v1/settings", tags=["configuration"])


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its value and default."""

    name: str
    """Key in mathrag.yaml, with levels joined by dots."""
    value: Any
    """Value in effect; `***` replaces a secret, and of a command only the program is shown because its arguments may
    hold one.
    """
    default: Any
    """Default value; null if there is none."""
    changed: bool
    """Whether the value differs from the default."""
    meaning: str
    """Description of the setting."""


@route(settings_router, "GET", "", Scope.OPERATE, "Get the settings", answers(list[Setting]), name="get")
async def answer_settings(deps: RequestDeps) -> Response:
    """Returns the settings that the orchestrator was started with, from its environment, its secret files and
    mathrag.yaml. Secrets are masked. An edit of the file takes effect after a restart.
    """
    return json(list_settings(deps.settings))


def list_settings(settings: Settings) -> list[Setting]:
    """List every setting in the order of the file."""
    return list(_list_group(Settings, settings.model_dump(mode="json"), _dump_defaults(Settings), ""))


def _list_group(
    kind: type[BaseModel], values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str
) -> Iterator[Setting]:
    for key, field in kind.model_fields.items():
        name, value, default, inner = f"{prefix}{key}", values[key], defaults.get(key), find_group(field)
        if inner is not None and value is not None:
            yield from _list_group(inner, value, default or _dump_defaults(inner), f"{name}.")
        elif name == "models":
            for each, model in value.items():
                yield from _list_group(Model, model, _dump_defaults(Model), f"{name}.{each}.")
        elif name == "devices":
            for number, device in enumerate(value):
                yield from _list_group(Device, device, _dump_defaults(Device), f"{name}.{number}.")
        else:
            shown, meaning = _mask(name, value), describe_field(field)
            yield Setting(name=name, value=shown, default=default, changed=value != default, meaning=meaning)


def _dump_defaults(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults without regard to the environment; required fields are left out."""
    return kind.model_construct().model_dump(mode="json")


def _mask(name: str, value: Any) -> Any:
    """Mask passwords in addresses and everything that may hold a key."""
    if name.endswith(".command") and len(value) > 1:
        return [value[0], HIDDEN]
    if isinstance(value, list):
        return [_mask("", each) for each in value]
    return redact(value) if isinstance(value, str) else value
