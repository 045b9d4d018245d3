"""`/v1/configuration`: the parameters that jobs, searches and chats get which do not name them."""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from services.orchestrator.access.identity import Actor
from services.orchestrator.api.etags import UNCHANGED, RequiredVersions, Seen, tagged
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.runtime.parameters import params_of
from shared.storage import configurations, pages
from shared.storage.configurations import Configuration

router = APIRouter(prefix="/v1/configuration", tags=["configuration"])

EXAMPLE: dict[str, Any] = {
    "params": {"crag": {"upper": 0.8}, "enhance": {"terms": {"gcd": ["greatest common divisor"]}}}
}
VIEW: dict[str, Any] = {
    **EXAMPLE, "version": 3, "changed_by": "alice", "changed_at": "2026-11-21T08:00:00Z",
}  # fmt: skip
CONFIGURATION = answers(Configuration, VIEW)


class ConfigurationChange(BaseModel):
    """What shall be different from the next request on; what is left out stays, a null takes a parameter away."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    params: dict[str, Any]
    """Nested, as a job's."""


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
    async with deps.database.transaction() as connection:
        found = await configurations.newest(connection)
        configurations.expect(found, versions)
        params = configurations.pruned(configurations.merged(found.params, request.params))
        params_of(params)
        await configurations.follow(connection, actor, found, params)
        changed = await configurations.newest(connection)
    return tagged(changed, version=changed.version)


@route(
    router, "GET", "/history", Scope.READ, "List configurations",
    answers(pages.Page[Configuration], {"data": [VIEW], "next_cursor": None}),
)  # fmt: skip
async def history(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Every version, newest first: who made it, when, and what it holds."""
    return json(await configurations.listed(deps.database, limit, cursor))
