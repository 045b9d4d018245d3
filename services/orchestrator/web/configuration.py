"""`/configuration`: what jobs get that do not name it, every version of it, and the settings."""

from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Form, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.configuration import changed_by, compared, restored_by
from services.orchestrator.api.effective_settings import listed
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, go_to, page
from shared.contracts.api_keys import Scope
from shared.contracts.fields import WHOLE
from shared.contracts.params import Params
from shared.pages.differences import differences, leaves
from shared.pages.pages import address
from shared.storage import configurations, pages
from shared.storage.database import Database

router = APIRouter()
Version = Annotated[int, Field(ge=0, le=pages.LARGEST_KEY), WHOLE]
FormVersion = Annotated[int, Form(ge=0, le=pages.LARGEST_KEY)]
ROWS = 20
DEFAULTS = leaves(msgspec.to_builtins(Params()))


class Shown(BaseModel):
    """Which versions are compared, and which page of the versions is shown."""

    model_config = ConfigDict(extra="forbid")

    left: Version | None = None
    right: Version | None = None
    cursor: str | None = None


@page(router, "/configuration")
async def shown(visit: Visitor, deps: RequestDeps) -> Response:
    """What holds, how it came about, and what two versions differ in."""
    asked = visit.query(Shown)
    holding = await configurations.holding(deps.database)
    versions, cursor = await _history(deps.database, asked.cursor)
    comparison = await _comparison(deps.database, asked, holding.version)
    return visit.show(
        "configuration/configuration.html", title="Configuration", json=_json(asked, comparison),
        holding=as_json(holding), values=leaves(holding.params), defaults=DEFAULTS, versions=versions, cursor=cursor,
        first=asked.cursor is not None, comparison=comparison,
        settings=as_json(listed(deps.settings)) if visit.may(Scope.OPERATE) else None,
    )  # fmt: skip


@page(router, "/configuration/change", Scope.OPERATE, method="POST")
async def change(
    visit: Visitor,
    deps: RequestDeps,
    seen: FormVersion,
    name: Annotated[str, Form(min_length=1, max_length=200)],
    value: Annotated[str, Form(max_length=100_000)] = "",
) -> Response:
    """As `PATCH /v1/configuration` with one parameter; without a value it has its default again."""
    await changed_by(deps.database, visit.actor, [seen], _tree(name.strip(), _value(value.strip())))
    return go_to("/configuration")


@page(router, "/configuration/restore", Scope.OPERATE, method="POST")
async def restore(visit: Visitor, deps: RequestDeps, seen: FormVersion, version: FormVersion) -> Response:
    """As `POST /v1/configuration/restore`."""
    await restored_by(deps.database, visit.actor, [seen], version)
    return go_to("/configuration")


async def _history(database: Database, cursor: str | None) -> tuple[list[Any], str | None]:
    """Versions, newest first, each with what it changed; and where the older ones are."""
    found = await configurations.listed(database, ROWS, cursor)
    known = {each.version: each for each in found.data}
    if found.data:
        known |= await configurations.versions(database, [found.data[-1].version - 1])
    shown = [
        {**as_json(each), "changes": as_json(differences(known[each.version - 1].params, each.params))}
        for each in found.data
    ]
    return shown, found.next_cursor


async def _comparison(database: Database, asked: Shown, newest: int) -> Any:
    """Of the two versions that are asked for; of one alone with the newest. None: none is asked for."""
    if asked.left is None and asked.right is None:
        return None
    left, right = (newest if version is None else version for version in (asked.left, asked.right))
    return as_json(await compared(database, left, right))


def _json(asked: Shown, comparison: Any) -> str:
    if comparison:
        left, right = comparison["left"]["version"], comparison["right"]["version"]
        return f"/v1/configuration/differences?left={left}&right={right}"
    return "/v1/configuration" if asked.cursor is None else f"/v1/configuration/history{address(asked.model_dump())}"


def _value(text: str) -> Any:
    """What is no JSON is text; nothing is the default."""
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return text


def _tree(name: str, value: Any) -> dict[str, Any]:
    """`gate.tau` as `{"gate": {"tau": value}}`."""
    tree = value
    for part in reversed(name.split(".")):
        tree = {part: tree}
    return cast("dict[str, Any]", tree)
