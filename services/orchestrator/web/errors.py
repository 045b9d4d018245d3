"""Shows errors to browsers as pages, with the same words as the API's problem."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from services.orchestrator.access.pages import wants_page
from services.orchestrator.api.problems import Problem
from services.orchestrator.web.page import Visit

Answer = Callable[[Request, Exception], Awaitable[Response]]


def install(app: FastAPI) -> None:
    """Draw every problem that `app` answers with as a page, for clients that request HTML."""
    handlers: dict[Any, Any] = app.exception_handlers
    for kind, answer in list(handlers.items()):
        app.add_exception_handler(kind, _make_drawer(answer))


def _make_drawer(answer: Answer) -> Answer:
    async def draw(request: Request, error: Exception) -> Response:
        response = await answer(request, error)
        if not wants_page(request.scope):
            return response
        problem = msgspec.json.decode(bytes(response.body), type=Problem)
        drawn = Visit(request).show("error.html", title=problem.title, status=problem.status, problem=problem)
        if "retry-after" in response.headers:
            drawn.headers["Retry-After"] = response.headers["retry-after"]
        return drawn

    return draw
