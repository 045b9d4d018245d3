"""Protect the applications that only our own services call: guard and retriever."""

import secrets

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.access.body_limit import BodyLimit
from shared.access.browser_filter import BrowserFilter
from shared.access.refusals import refuse
from shared.bearer import key_of
from shared.errors import Unauthorized
from shared.settings import Settings

OPEN = frozenset({"/healthz"})
"""Paths that need no key: they tell only that the process is up."""


def protect(app: Starlette, settings: Settings, *, most: int) -> None:
    """Accept requests of up to `most` bytes, with the service key or, if none is set, from programs but no web page."""
    app.add_middleware(BodyLimit, most=most, hint="send fewer at once")
    if settings.service_key:
        app.add_middleware(ServiceKey, key=settings.service_key)
    else:
        app.add_middleware(BrowserFilter)


class ServiceKey:
    """Middleware that refuses requests without the service key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN and not self._has_key(scope):
            error = Unauthorized(
                "this service answers only to services with its key", hint="set the same MATHRAG_SERVICE_KEY for all"
            )
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        key = key_of(Headers(scope=scope).get("authorization", ""))
        return key is not None and secrets.compare_digest(key.encode(), self._key)
