"""Serves `/configuration`: the default parameters of jobs, their versions, and the settings of the service."""

from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Form, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.configuration import (
    change_configuration,
    compare_versions,
    list_settings,
    restore_configuration,
)
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, go_to, page
from shared.fields import WHOLE
from shared.pages.formatting import compare_trees, flatten_tree
from shared.pages.pages import format_query
from shared.params import Params
from shared.shapes import Scope
from shared.storage import configurations
from shared.storage.database import LARGEST_KEY, Database

router = APIRouter()
Version = Annotated[int, Field(ge=0, le=LARGEST_KEY), WHOLE]
FormVersion = Annotated[int, Form(ge=0, le=LARGEST_KEY)]
ROWS = 20
DEFAULTS = flatten_tree(msgspec.to_builtins(Params()))


class HistoryQuery(BaseModel):
    """Which versions to compare, and which page of the versions to show."""

    model_config = ConfigDict(extra="forbid")

    left: Version | None = None
    right: Version | None = None
    cursor: str | None = None


@page(router, "/configuration")
async def show(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the current parameters, their history, and the differences between two versions."""
    query = visit.query(HistoryQuery)
    holding = await configurations.load_newest(deps.database)
    versions, cursor = await _load_history(deps.database, query.cursor)
    # Compare the two requested versions, or one with the newest; None if none is requested.
    if query.left is None and query.right is None:
        comparison = None
    else:
        left, right = (holding.version if version is None else version for version in (query.left, query.right))
        comparison = as_json(await compare_versions(deps.database, left, right))
    return visit.show(
        "configuration/configuration.html", title="Configuration", json=_link_json(query, comparison),
        holding=as_json(holding), values=flatten_tree(holding.params), defaults=DEFAULTS, versions=versions,
        cursor=cursor,
        first=query.cursor is not None, comparison=comparison,
        settings=as_json(list_settings(deps.settings)) if visit.may(Scope.OPERATE) else None,
    )  # fmt: skip


@page(router, "/configuration/change", Scope.OPERATE, method="POST")
async def change(
    visit: Visitor,
    deps: RequestDeps,
    seen: FormVersion,
    name: Annotated[str, Form(min_length=1, max_length=200)],
    value: Annotated[str, Form(max_length=100_000)] = "",
) -> Response:
    """Changes one parameter as `PATCH /v1/configuration` does; an empty value restores its default."""
    await change_configuration(
        deps.database, visit.actor, [seen], _nest_value(name.strip(), _parse_value(value.strip()))
    )
    return go_to("/configuration")


@page(router, "/configuration/restore", Scope.OPERATE, method="POST")
async def restore(visit: Visitor, deps: RequestDeps, seen: FormVersion, version: FormVersion) -> Response:
    """Restores a version as `POST /v1/configuration/restore` does."""
    await restore_configuration(deps.database, visit.actor, [seen], version)
    return go_to("/configuration")


async def _load_history(database: Database, cursor: str | None) -> tuple[list[Any], str | None]:
    """Return the versions, newest first, each with what it changed, and the cursor of the older ones."""
    found = await configurations.list_versions(database, ROWS, cursor)
    known = {each.version: each for each in found.data}
    if found.data:
        known |= await configurations.load_versions(database, [found.data[-1].version - 1])
    versions = [
        {**as_json(each), "changes": as_json(compare_trees(known[each.version - 1].params, each.params))}
        for each in found.data
    ]
    return versions, found.next_cursor


def _link_json(asked: HistoryQuery, comparison: Any) -> str:
    if comparison:
        left, right = comparison["left"]["version"], comparison["right"]["version"]
        return f"/v1/configuration/differences?left={left}&right={right}"
    return (
        "/v1/configuration" if asked.cursor is None else f"/v1/configuration/history{format_query(asked.model_dump())}"
    )


def _parse_value(text: str) -> Any:
    """Parse the text as JSON, else take it as a string; empty means the default."""
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return text


def _nest_value(name: str, value: Any) -> dict[str, Any]:
    """Nest a dotted name: `gate.tau` becomes `{"gate": {"tau": value}}`."""
    tree = value
    for part in reversed(name.split(".")):
        tree = {part: tree}
    return cast("dict[str, Any]", tree)
