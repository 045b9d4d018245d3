"""An application that only our own services call: guard and retriever."""

import secrets

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.access.bodies import Bodies
from shared.access.browsers import Browsers
from shared.access.refusals import refuse
from shared.bearer import key_of
from shared.errors import Unauthorized
from shared.settings import Settings

OPEN = frozenset({"/healthz"})
"""Paths that everybody may ask: they say no more than that a process is up."""


def protect(app: Starlette, settings: Settings, *, most: int) -> None:
    """Take requests of up to `most` bytes, from services with our key; without one, from programs but no web page."""
    app.add_middleware(Bodies, most=most, hint="send fewer at once")
    if settings.service_key:
        app.add_middleware(ServiceKey, key=settings.service_key)
    else:
        app.add_middleware(Browsers)


class ServiceKey:
    """Answers only to the services that share its key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"] not in OPEN and not self._known(scope):
            error = Unauthorized(
                "this service answers to the other services alone", hint="give them all the same MATHRAG_SERVICE_KEY"
            )
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        key = key_of(Headers(scope=scope).get("authorization", ""))
        return key is not None and secrets.compare_digest(key.encode(), self._key)
