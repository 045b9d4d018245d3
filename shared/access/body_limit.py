"""Refuse a request whose body is too long before the body is read."""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.access.refusals import refuse
from shared.errors import TooLarge

NOWHERE = re.compile(r"(?!)")


class BodyLimit:
    """Middleware that refuses bodies above `most` bytes or of undeclared length, except on paths that take streams."""

    def __init__(self, app: ASGIApp, most: int, *, hint: str, streams: re.Pattern[str] = NOWHERE) -> None:
        self._app = app
        self._most = most
        self._hint = hint
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._streams.fullmatch(scope["path"]) and not self._is_short(scope):
            error = TooLarge(f"a request must declare its length, at most {self._most} bytes", hint=self._hint)
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_short(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "" if "transfer-encoding" in headers else "0")
        return length.isdecimal() and int(length) <= self._most
