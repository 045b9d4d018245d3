"""All pages together, their assets, and errors as pages."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response

from mathrag.errors import NotFound
from services.orchestrator.access.identity import wants_page
from services.orchestrator.api.routes import Problem
from services.orchestrator.web import (
    catalog,
    compare,
    configuration,
    corpora,
    documentation,
    experiments,
    find,
    job,
    job_form,
    keys,
    labels,
    now,
    prompts,
    sample,
    search,
    start,
)
from services.orchestrator.web.page import Visit, page
from shared.pages import pages

router = APIRouter()
FOREVER = "public, max-age=31536000, immutable"
"""Browsers cache style sheet, scripts and vendored libraries for ever; a changed file has another name."""


@page(router, "/assets/{path:path}", None)
async def asset(path: str, request: Request) -> Response:
    """Serves a file that the pages link to; it is the same for every visitor."""
    return _answer(path, request)


@page(router, "/favicon.ico", None)
async def favicon(request: Request) -> Response:
    """Serves the icon that browsers request by themselves."""
    return _answer(pages.asset_path("icon.svg").removeprefix("/assets/"), request)


def _answer(path: str, request: Request) -> Response:
    found = pages.find_asset(path)
    if found is None:
        raise NotFound(f"/assets/{path} does not exist", hint="reload the page: its files have been renamed since")
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, 200, {**headers, "Content-Encoding": "gzip"}, found.media)
    return Response(found.body, 200, headers, found.media)


Answer = Callable[[Request, Exception], Awaitable[Response]]


def draw_errors(app: FastAPI) -> None:
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


PARTS = (
    compare, configuration, corpora, documentation, now, experiments, find, job, keys, labels, catalog, job_form,
    prompts, sample, search, start,
)  # fmt: skip


def add_pages(app: FastAPI) -> None:
    """Add every page to `app`, and draw errors as pages for clients that request HTML."""
    app.include_router(router)
    for part in PARTS:
        app.include_router(part.router)
    draw_errors(app)
