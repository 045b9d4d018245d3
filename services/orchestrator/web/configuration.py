"""Serves `/configuration`: the default parameters of jobs, their versions, and the settings of the service."""

from typing import Annotated, Any

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
from shared.storage.database import LARGEST_KEY

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
    listed = await configurations.list_versions(deps.database, ROWS, query.cursor)
    known = {each.version: each for each in listed.data}
    if listed.data:
        known |= await configurations.load_versions(deps.database, [listed.data[-1].version - 1])
    versions = [
        {**as_json(each), "changes": as_json(compare_trees(known[each.version - 1].params, each.params))}
        for each in listed.data
    ]
    # Compare the two requested versions, or one with the newest.
    comparison, json = None, "/v1/configuration"
    if query.left is not None or query.right is not None:
        left, right = (holding.version if version is None else version for version in (query.left, query.right))
        comparison = as_json(await compare_versions(deps.database, left, right))
        json += f"/differences?left={left}&right={right}"
    elif query.cursor is not None:
        json += f"/history{format_query(query.model_dump())}"
    return visit.show(
        "configuration/configuration.html", title="Configuration", json=json,
        holding=as_json(holding), values=flatten_tree(holding.params), defaults=DEFAULTS, versions=versions,
        cursor=listed.next_cursor, first=query.cursor is not None, comparison=comparison,
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
    """Changes one parameter as `PATCH /v1/configuration` does; an empty value restores its default.

    The value is JSON, or else a text. The name is dotted, as `gate.tau`.
    """
    text = value.strip()
    tree: Any
    try:
        tree = msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        tree = text
    for part in reversed(name.strip().split(".")):
        tree = {part: tree}
    await change_configuration(deps.database, visit.actor, [seen], tree)
    return go_to("/configuration")


@page(router, "/configuration/restore", Scope.OPERATE, method="POST")
async def restore(visit: Visitor, deps: RequestDeps, seen: FormVersion, version: FormVersion) -> Response:
    """Restores a version as `POST /v1/configuration/restore` does."""
    await restore_configuration(deps.database, visit.actor, [seen], version)
    return go_to("/configuration")
