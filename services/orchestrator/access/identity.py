"""Who asks: the name of an API key, or `local` where none is needed."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.access.keyring import Keyring
from shared.access.internal import OPEN
from shared.access.refusals import refuse
from shared.bearer import key_of
from shared.contracts import api_keys as keys
from shared.errors import MathragError, Unauthorized
from shared.storage.database import Database
from shared.storage.operations import LOCAL

HINT = "send `Authorization: Bearer KEY`, or set MATHRAG_API_KEY; the operator makes one with `mathrag key create`"
EVERYTHING = (keys.Scope.OPERATE,)


class Identity:
    """Lets in whoever has a valid key, and writes down who that is; without keys everybody is the operator."""

    def __init__(self, app: ASGIApp, keyring: Keyring | None) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            await self._identify(scope)
        except MathragError as error:
            return await refuse(error, scope, receive, send)
        return await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        state = scope.setdefault("state", {})
        state["actor"], state["scopes"] = LOCAL, EVERYTHING
        if self._keyring is None or scope["path"] in OPEN:
            return
        key = key_of(Headers(scope=scope).get("authorization", ""))
        if key is None:
            raise Unauthorized("an API key is needed", hint=HINT)
        database: Database = scope["app"].state.deps.database
        found = await self._keyring.find(database, key)
        if found is None:
            raise Unauthorized("this API key is not valid: unknown, expired or revoked", hint=HINT)
        state["actor"], state["scopes"] = found.name, found.scopes


def _actor(request: Request) -> str:
    actor: str = request.state.actor
    return actor


Actor = Annotated[str, Depends(_actor)]
"""Who asks, for the journal of operations."""
