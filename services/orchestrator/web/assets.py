"""Serves `/assets/`: style sheet, scripts and vendored libraries. Browsers cache them for ever; a changed file has
another name.
"""

from fastapi import APIRouter, Request, Response

from services.orchestrator.web.page import page
from shared.errors import NotFound
from shared.pages import pages

router = APIRouter()
FOREVER = "public, max-age=31536000, immutable"


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
        raise NotFound(f"there is no file /assets/{path}", hint="reload the page: its files have been renamed since")
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, 200, {**headers, "Content-Encoding": "gzip"}, found.media)
    return Response(found.body, 200, headers, found.media)
