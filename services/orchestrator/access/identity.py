"""Identifies the caller by the name of the API key, or as `local` if no key is required."""

from collections.abc import Collection
from typing import Annotated, NamedTuple
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.access.keyring import Keyring
from services.orchestrator.access.pages import SIGN_IN, is_open, is_page, wants_page
from services.orchestrator.access.sessions import Sessions
from shared import shapes
from shared.access.filters import OPEN, SAFE, key_of, refuse
from shared.errors import Forbidden, MathragError, Unauthorized
from shared.storage.database import LOCAL, Database
from shared.storage.keys import ValidKey

HINT = "send `Authorization: Bearer KEY`, or set MATHRAG_API_KEY; the operator creates one with `mathrag key create`"
EVERYTHING = (shapes.Scope.OPERATE,)


class Identity:
    """Admits callers with a valid key and records who they are; if keys are not required, everybody is the operator."""

    def __init__(self, app: ASGIApp, keyring: Keyring | None, sessions: Sessions) -> None:
        self._app = app
        self._keyring = keyring
        self._sessions = sessions

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
        state["actor"], state["prefix"], state["scopes"] = LOCAL, None, EVERYTHING if self._keyring is None else ()
        state["keyring"], state["sessions"], state["csrf"] = self._keyring, self._sessions, None
        if self._keyring is None or scope["path"] in OPEN or is_open(scope["path"]):
            return
        found = await self._find(scope, self._keyring)
        state["actor"], state["prefix"], state["scopes"] = found.name, found.prefix, found.scopes

    async def _find(self, scope: Scope, keyring: Keyring) -> ValidKey:
        database: Database = scope["app"].state.deps.admission
        headers = Headers(scope=scope)
        key = key_of(headers.get("authorization", ""))
        if key is None:
            return await self._authenticate_session(scope, headers, keyring, database)
        found = await keyring.find(database, key)
        if found is None:
            raise Unauthorized("this API key is not valid: unknown, expired or revoked", hint=HINT)
        return found

    async def _authenticate_session(
        self, scope: Scope, headers: Headers, keyring: Keyring, database: Database
    ) -> ValidKey:
        """Return the key that the visitor signed in with; accepted for pages, and for reads that a page links to."""
        session = self._sessions.find(headers, https=scope["scheme"] == "https")
        if session is None or not (is_page(scope["path"]) or scope["method"] in SAFE):
            raise Unauthorized("an API key is required", hint=HINT)
        found = await keyring.find_session(database, session)
        if found is None:
            raise Unauthorized("the session has ended", hint=f"sign in again: {SIGN_IN}")
        scope["state"]["csrf"] = session.csrf
        return found


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


class Caller(NamedTuple):
    """Who sends a request, and what they may do."""

    name: str | None
    """Name of the key; None where no keys are asked for."""
    scopes: Collection[str]

    def may_change(self, submitted_by: str | None) -> bool:
        """Return whether the caller may change a job of this key. A job without one is everybody's."""
        return submitted_by in (None, self.name) or shapes.allows(self.scopes, shapes.Scope.OPERATE)

    def check_owns(self, submitters: Collection[str | None], what: str) -> None:
        """Check that the caller may change jobs of all these keys.

        Raises:
            Forbidden: another key submitted one of them, and the caller is no operator.
        """
        others = [name for name in submitters if not self.may_change(name)]
        if others:
            raise Forbidden(
                f"{what} was submitted with the key {others[0]!r}",
                hint="ask its owner, or use a key with the scope 'operate'",
            )


def get_caller(request: Request) -> Caller:
    """Return who sends the request."""
    return Caller(None if request.state.keyring is None else request.state.actor, request.state.scopes)


RequestCaller = Annotated[Caller, Depends(get_caller)]
