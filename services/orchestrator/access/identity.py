"""Identifies the caller by the name of the API key, or as `local` if no key is required."""

from http.cookies import CookieError, SimpleCookie
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.access import sessions
from services.orchestrator.access.keyring import Keyring
from services.orchestrator.access.pages import SIGN_IN, is_open, is_page, wants_page
from shared.access.browser_filter import SAFE
from shared.access.internal import OPEN
from shared.access.refusals import refuse
from shared.bearer import key_of
from shared.contracts import api_keys as keys
from shared.errors import MathragError, Unauthorized
from shared.storage.database import Database
from shared.storage.keys import ValidKey
from shared.storage.operations import LOCAL

HINT = "send `Authorization: Bearer KEY`, or set MATHRAG_API_KEY; the operator creates one with `mathrag key create`"
EVERYTHING = (keys.Scope.OPERATE,)


class Identity:
    """Admits callers with a valid key and records who they are; if keys are not required, everybody is the operator."""

    def __init__(self, app: ASGIApp, keyring: Keyring | None) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            await self._identify(scope)
        except Unauthorized as error:
            if wants_page(scope):
                return await _sign_in(scope)(scope, receive, send)
            return await refuse(error, scope, receive, send)
        except MathragError as error:
            return await refuse(error, scope, receive, send)
        return await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        state = scope.setdefault("state", {})
        state["actor"], state["scopes"] = LOCAL, EVERYTHING
        state["keyring"], state["csrf"] = self._keyring, None
        if self._keyring is None or scope["path"] in OPEN or is_open(scope["path"]):
            return
        found = await self._find(scope, self._keyring)
        state["actor"], state["scopes"] = found.name, found.scopes

    async def _find(self, scope: Scope, keyring: Keyring) -> ValidKey:
        database: Database = scope["app"].state.deps.database
        headers = Headers(scope=scope)
        key = key_of(headers.get("authorization", ""))
        if key is None:
            return await _authenticate_session(scope, headers, keyring, database)
        found = await keyring.find(database, key)
        if found is None:
            raise Unauthorized("this API key is not valid: unknown, expired or revoked", hint=HINT)
        return found


async def _authenticate_session(scope: Scope, headers: Headers, keyring: Keyring, database: Database) -> ValidKey:
    """Return the key that the visitor signed in with; accepted for pages, and for reads that a page links to."""
    session = sessions.parse(_read_cookie(headers))
    if session is None or not (is_page(scope["path"]) or scope["method"] in SAFE):
        raise Unauthorized("an API key is required", hint=HINT)
    found = await keyring.find_session(database, session)
    if found is None:
        raise Unauthorized("the session has ended", hint=f"sign in again: {SIGN_IN}")
    scope["state"]["csrf"] = sessions.make_csrf_token(session, found.digest)
    return found


def _read_cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(sessions.COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _sign_in(scope: Scope) -> RedirectResponse:
    """Redirect to the sign-in page, and from there back to the requested page."""
    query = scope["query_string"].decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    back = f"?next={quote(wanted, safe='/')}" if scope["method"] in SAFE else ""
    return RedirectResponse(SIGN_IN + back, 303)


def _get_actor(request: Request) -> str:
    actor: str = request.state.actor
    return actor


Actor = Annotated[str, Depends(_get_actor)]
"""Name of the caller, for the journal of operations."""
