"""Serves `/keys` and `/sign-in`."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Response

from mathrag.errors import Conflict, Invalid
from services.orchestrator.access import identity
from services.orchestrator.access.identity import SIGN_IN
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import Visit, Visitor, go_to, list_messages, page
from shared.runtime.shares import load_shares
from shared.shapes import Scope, parse_duration
from shared.storage import keys

router = APIRouter()
GRACE = "24h"
"""Grace that the form for a rotation starts with, as in `mathrag key rotate`."""
TAKEN = "a valid key has this name: rotate that key, or choose another name"


@page(router, "/keys", Scope.OPERATE)
async def list_keys(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists all keys ever created, and what the valid ones use, with a form that creates one."""
    return await _show(visit, deps, await keys.list_keys(deps.database))


@page(router, "/keys", Scope.OPERATE, method="POST")
async def create(
    visit: Visitor,
    deps: RequestDeps,
    scope: Annotated[list[Scope], Form(default_factory=list)],
    name: Annotated[str, Form()] = "",
    lifetime: Annotated[str, Form()] = "",
    weight: Annotated[str, Form()] = "",
    project: Annotated[str, Form()] = "",
) -> Response:
    """Creates a key and shows it, or the errors. It does not redirect: only this answer may hold the key."""
    values = {"name": name.strip(), "scope": " ".join(scope), "lifetime": lifetime.strip()}
    values |= {"weight": weight.strip(), "project": project.strip()}
    messages = list_messages(values, _check)
    found = await keys.list_keys(deps.database)
    if any(key.valid and key.name == values["name"] for key in found):
        messages["name"] = TAKEN
    if not messages:
        span = parse_duration("`lifetime`", values["lifetime"]) if values["lifetime"] else None
        try:
            made = await keys.create_key(
                deps.database, visit.actor, values["name"], set(scope), span,
                weight=_parse_weight(values["weight"]), project=values["project"] or None,
            )  # fmt: skip
        except Conflict:  # another form has created it in this moment
            messages["name"] = TAKEN
        else:
            listed = await keys.list_keys(deps.database)
            return await _show(visit, deps, listed, made={"name": values["name"], "key": made})
    return await _show(visit, deps, found, status=422, values=values, messages=messages)


@page(router, "/keys/{name}/rotate", Scope.OPERATE, method="POST")
async def rotate(visit: Visitor, deps: RequestDeps, name: str, grace: Annotated[str, Form()] = "") -> Response:
    """Replaces the key and shows the new one, or the errors."""
    typed = grace.strip()
    messages = list_messages({"grace": typed}, lambda left: parse_duration("`grace`", left.get("grace", GRACE)))
    if messages:
        found = await keys.list_keys(deps.database)
        return await _show(visit, deps, found, status=422, rotated=name, grace=typed, messages=messages)
    made = await keys.rotate_key(deps.database, visit.actor, name, parse_duration("`grace`", typed))
    return await _show(visit, deps, await keys.list_keys(deps.database), made={"name": name, "key": made})


@page(router, "/keys/{prefix}/revoke", Scope.OPERATE, method="POST")
async def revoke(visit: Visitor, deps: RequestDeps, prefix: str) -> Response:
    """Revokes the one key with this prefix."""
    await keys.revoke_keys(deps.database, visit.actor, prefix)
    return go_to("/keys")


def _check(left: Mapping[str, str]) -> None:
    """Check the fields of a new key that were not found wrong before; others are replaced by usable values."""
    scopes = [Scope(each) for each in left.get("scope", Scope.READ).split()]
    keys.check_new_key(left.get("name", "stands-in"), scopes)
    if left.get("lifetime"):
        parse_duration("`lifetime`", left["lifetime"])
    keys.check_share(_parse_weight(left.get("weight", "")), left.get("project") or None, scopes)


def _parse_weight(typed: str) -> int:
    if typed and not re.fullmatch(r"[0-9]{1,3}", typed):
        raise Invalid(f"`weight`: {typed[:40]!r} is not a whole number", hint=keys.WEIGHT_HINT)
    return int(typed or 1)


async def _show(
    visit: Visit,
    deps: Deps,
    found: Sequence[keys.ApiKey],
    *,
    status: int = 200,
    made: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    messages: Mapping[str, str] | None = None,
    rotated: str | None = None,
    grace: str = GRACE,
) -> Response:
    """Answer with the page.

    Args:
        deps: where the keys' shares are read.
        found: all keys.
        made: name and text of the key that this request has created.
        values: the input of the form for a new key.
        messages: error messages by field.
        rotated: name of the key whose rotation failed.
        grace: the input for its grace.
    """
    async with deps.database.snapshot() as connection:
        shares = await load_shares(connection, deps.settings.limits)
    return visit.show(
        "keys/keys.html", title="API keys", status=status, keys=found, shares=shares,
        # By name: a rotation replaces the newest valid key, which comes last.
        newest={key.name: key.prefix for key in found if key.valid},
        own=visit.request.state.prefix, asked_for=visit.request.state.keyring is not None,
        scopes=list(Scope), made=made, values=values or {}, messages=messages or {}, rotated=rotated, grace=grace,
        usual=GRACE,
    )  # fmt: skip


WRONG = "this key is not valid: unknown, expired or revoked"
_OWN_PATH = re.compile(r"/(?![/\\])[^\s\\]*")
"""Matches a path of this site; browsers take `//host` and `/\\host` for other sites."""


@page(router, SIGN_IN, None)
async def ask(visit: Visitor, next: str = "/") -> Response:  # noqa: A002 - the address's word
    """Shows the form; if no keys are required, redirects to the start page."""
    if visit.request.state.keyring is None:
        return go_to("/")
    return visit.show("sign_in.html", title="Sign in", next=_check_own_path(next), wrong=None)


@page(router, SIGN_IN, None, method="POST")
async def sign_in(
    visit: Visitor,
    deps: RequestDeps,
    key: Annotated[str, Form()],
    next: Annotated[str, Form()] = "/",  # noqa: A002
) -> Response:
    """Starts a session if the key is valid, else shows the form again."""
    state, client = visit.request.state, visit.request.client
    if state.keyring is None:
        return go_to("/")
    found = await state.keyring.find(deps.admission, key.strip())
    if found is None:
        state.keyring.count_wrong_key("" if client is None else client.host)
        return visit.show("sign_in.html", title="Sign in", status=401, next=_check_own_path(next), wrong=WRONG)
    response = go_to(_check_own_path(next))
    state.sessions.start(response, found.prefix, https=visit.https)
    return response


@page(router, "/sign-out", None, method="POST")
async def sign_out(visit: Visitor) -> Response:
    """Removes the session from the browser; its key stays valid."""
    response = go_to(SIGN_IN)
    identity.end(response, https=visit.https)
    return response


def _check_own_path(path: str) -> str:
    return path if _OWN_PATH.fullmatch(path) else "/"
