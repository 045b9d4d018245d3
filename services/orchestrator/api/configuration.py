"""`/v1/configuration`: the parameters that jobs, searches and chats get which do not name them."""

from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.access.identity import Actor
from services.orchestrator.api.etags import UNCHANGED, RequiredVersions, Seen, tagged
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.fields import WHOLE
from shared.errors import NotFound
from shared.pages.differences import ValueDifference, differences
from shared.runtime.parameters import params_of
from shared.storage import configurations, pages
from shared.storage.configurations import Configuration
from shared.storage.database import Database

router = APIRouter(prefix="/v1/configuration", tags=["configuration"])

EXAMPLE: dict[str, Any] = {
    "params": {"crag": {"upper": 0.8}, "enhance": {"terms": {"gcd": ["greatest common divisor"]}}}
}
VIEW: dict[str, Any] = {
    **EXAMPLE, "version": 3, "changed_by": "alice", "changed_at": "2026-11-21T08:00:00Z",
}  # fmt: skip
CONFIGURATION = answers(Configuration, VIEW)
DIFFERENCES: dict[str, Any] = {
    "left": {**VIEW, "version": 2, "params": {}}, "right": VIEW,
    "differences": [{"name": "crag.upper", "change": "added", "left": None, "right": 0.8}],
}  # fmt: skip
Version = Annotated[int, Query(ge=0, le=pages.LARGEST_KEY, examples=[3], description="0: what is shipped.")]


class ConfigurationChange(BaseModel):
    """What shall be different from the next request on; what is left out stays, a null takes a parameter away."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    params: dict[str, Any]
    """Nested, as a job's."""


class Restoration(BaseModel):
    """Which version shall hold again."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": {"version": 2}})

    version: Annotated[int, Field(ge=0, le=pages.LARGEST_KEY), WHOLE]
    """0: what is shipped."""


class ConfigurationDifferences(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions, and what differs between them."""

    left: Configuration
    right: Configuration
    differences: list[ValueDifference]
    """By name."""


@route(router, "GET", "", Scope.READ, "Get the configuration", CONFIGURATION | UNCHANGED)
async def get(deps: RequestDeps, seen: Seen) -> Response:
    """Parameters that jobs, searches and chats get which do not name them (docs/api.md#configuration): what holds now;
    version 0 before the first change. 304 while nothing has changed.
    """
    found = await configurations.holding(deps.database)
    return tagged(found, version=found.version, seen=seen)


@route(router, "PATCH", "", Scope.OPERATE, "Change the configuration", CONFIGURATION, refuses=(412, 428))
async def change(request: ConfigurationChange, deps: RequestDeps, actor: Actor, versions: RequiredVersions) -> Response:
    """From the next request on, at every process of the API; jobs that were accepted keep their parameters
    (docs/api.md#configuration). `If-Match` is needed: with another version 412, without it 428 (docs/api.md#tags).

    A change that no job could have as its parameters is refused whole, with the field. Every version is kept, with who
    made it.
    """
    changed = await changed_by(deps.database, actor, versions, request.params)
    return tagged(changed, version=changed.version)


@route(
    router, "POST", "/restore", Scope.OPERATE, "Restore a configuration", CONFIGURATION, refuses=(404, 412, 428)
)  # fmt: skip
async def restore(request: Restoration, deps: RequestDeps, actor: Actor, versions: RequiredVersions) -> Response:
    """A new version that holds what an older one held; 0: the shipped defaults. `If-Match` as for a change. What this
    release does not know any more is refused, with the field.
    """
    restored = await restored_by(deps.database, actor, versions, request.version)
    return tagged(restored, version=restored.version)


async def changed_by(
    database: Database, actor: str, seen: Collection[int] | None, params: dict[str, Any]
) -> Configuration:
    """The configuration after `actor` has put `params` on top of the one that holds.

    Raises:
        PreconditionFailed: it is at none of the versions that were seen.
        Invalid: no job could have these parameters.
    """
    async with database.transaction() as connection:
        found = await configurations.newest(connection)
        wanted = configurations.pruned(configurations.merged(found.params, params))
        return await _follow(connection, actor, seen, found, wanted)


async def restored_by(database: Database, actor: str, seen: Collection[int] | None, version: int) -> Configuration:
    """The configuration after `actor` has put what `version` held in its place.

    Raises:
        NotFound: there is no such version.
        PreconditionFailed, Invalid: as of `changed_by`.
    """
    (wanted,) = await existing(database, version)
    async with database.transaction() as connection:
        found = await configurations.newest(connection)
        return await _follow(connection, actor, seen, found, wanted.params)


async def _follow(
    connection: AsyncConnection, actor: str, seen: Collection[int] | None, found: Configuration, params: dict[str, Any]
) -> Configuration:
    configurations.expect(found, seen)
    params_of(params)
    await configurations.follow(connection, actor, found, params)
    return await configurations.newest(connection)


async def existing(database: Database, *versions: int) -> list[Configuration]:
    """These versions, in this order.

    Raises:
        NotFound: one of them does not exist.
    """
    found = await configurations.versions(database, versions)
    for version in versions:
        if version not in found:
            hint = "GET /v1/configuration/history, or mathrag config history, has all of them"
            raise NotFound(f"there is no version {version} of the configuration", hint=hint)
    return [found[version] for version in versions]


@route(
    router, "GET", "/differences", Scope.READ, "Compare two configurations",
    answers(ConfigurationDifferences, DIFFERENCES), refuses=(404,),
)  # fmt: skip
async def compare(deps: RequestDeps, left: Version, right: Version) -> Response:
    """What was added, removed and changed from one version to another; version 0 is what is shipped."""
    return json(await compared(deps.database, left, right))


async def compared(database: Database, left: int, right: int) -> ConfigurationDifferences:
    """What differs between two versions.

    Raises:
        NotFound: one of them does not exist.
    """
    before, after = await existing(database, left, right)
    return ConfigurationDifferences(
        left=before, right=after, differences=differences(before.params, after.params)
    )  # fmt: skip


@route(
    router, "GET", "/history", Scope.READ, "List configurations",
    answers(pages.Page[Configuration], {"data": [VIEW], "next_cursor": None}),
)  # fmt: skip
async def history(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Every version, newest first: who made it, when, and what it holds."""
    return json(await configurations.listed(deps.database, limit, cursor))
