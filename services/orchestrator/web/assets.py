"""`/assets/`: style sheet, scripts and vendored libraries, kept by browsers for ever since their names change."""

from fastapi import APIRouter, Request, Response

from services.orchestrator.web.page import page
from shared.errors import NotFound
from shared.pages import assets

router = APIRouter()
FOREVER = "public, max-age=31536000, immutable"


@page(router, "/assets/{path:path}", None)
async def asset(path: str, request: Request) -> Response:
    """Whatever the pages link to; the same for everybody."""
    return _answer(path, request)


@page(router, "/favicon.ico", None)
async def favicon(request: Request) -> Response:
    """What browsers ask for by themselves."""
    return _answer(assets.address("icon.svg").removeprefix("/assets/"), request)


def _answer(path: str, request: Request) -> Response:
    found = assets.find(path)
    if found is None:
        raise NotFound(f"there is no file /assets/{path}", hint="reload the page: its files have other names by now")
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, 200, {**headers, "Content-Encoding": "gzip"}, found.media)
    return Response(found.body, 200, headers, found.media)
