"""Signs visitors in with an API key, and out again."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Response

from services.orchestrator.access import sessions
from services.orchestrator.access.pages import SIGN_IN
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, go_to, page

router = APIRouter()
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
    sessions.end(response, https=visit.https)
    return response


def _check_own_path(path: str) -> str:
    return path if _OWN_PATH.fullmatch(path) else "/"
