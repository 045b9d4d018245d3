"""A request to a piece of middleware, with an application behind it that says what reached it."""

from collections.abc import Callable
from typing import Any

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

Wrap = Callable[[ASGIApp], ASGIApp]


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 200 to everything."""
    await JSONResponse({"path": Request(scope).url.path})(scope, receive, send)


async def ask(wrap: Wrap, method: str = "GET", path: str = "/", **request: Any) -> httpx2.Response:
    """What `wrap` makes of a request."""
    base = request.pop("base", "http://localhost")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=wrap(reached)), base_url=base) as http:
        return await http.request(method, path, **request)
