"""Adds the security headers to every answer: no type guessing, no framing, no scripts, no caching."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
HSTS = "max-age=31536000"


class SecurityHeaders:
    """Adds the headers that a route has not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add(MutableHeaders(scope=message), secure=scope["scheme"] == "https")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def _add(headers: MutableHeaders, *, secure: bool) -> None:
    for name, value in ALWAYS.items():
        headers.setdefault(name, value)
    # Answers with an ETag may be cached and revalidated; all others must not be stored.
    headers.setdefault("Cache-Control", "private, no-cache" if "etag" in headers else "no-store")
    if secure:
        headers.setdefault("Strict-Transport-Security", HSTS)
