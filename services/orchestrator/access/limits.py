"""Limits of requests: headers, and values in JSON bodies."""

import re
from collections import Counter
from typing import Any, NamedTuple

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mathrag.errors import Invalid, MathragError, NotFound, TooMany, Unavailable
from shared.access.filters import refuse
from shared.settings import Limits

UPLOADS = re.compile(r"/v1/(corpora|datasets|datasets/from-graph|graphs|rules/import|jobs/import)|/openai/v1/files")
TRAINING = re.compile(r"/v1/datasets/[^/]+/training")
EVENTS = re.compile(r"/v1/jobs/[^/]+/events")
LIVE_PAGES = re.compile(r"/live/.+")


class RequestKind(NamedTuple):
    """A kind of requests with a limit on their concurrent number."""

    setting: str
    words: str
    method: str
    path: re.Pattern[str]
    error: type[MathragError] = TooMany


KINDS = (
    RequestKind("uploads", "simultaneous uploads", "POST", UPLOADS),
    RequestKind("training_exports", "simultaneous exports of training data", "GET", TRAINING),
    RequestKind("event_streams", "open event streams", "GET", EVENTS),
    RequestKind("page_streams", "open live pages", "GET", LIVE_PAGES, Unavailable),
)


class ConcurrencyLimit:
    """Counts concurrent long requests, and refuses those beyond the limit."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        asked, path = scope["method"], scope["path"]
        kind = next((kind for kind in KINDS if asked == kind.method and kind.path.fullmatch(path)), None)
        if kind is None:
            return await self._app(scope, receive, send)
        most: int = getattr(self._limits, kind.setting)
        if self._running[kind.setting] >= most:
            message = f"the limit of {most} {kind.words} is reached (`limits.{kind.setting}`)"
            error = kind.error(message, hint="wait until one of them ends")
            return await refuse(error, scope, receive, send)
        self._running[kind.setting] += 1
        try:
            return await self._app(scope, receive, send)
        finally:
            self._running[kind.setting] -= 1


ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
HSTS = "max-age=31536000"


class SecurityHeaders:
    """Forbids type guessing, framing, scripts and caching, where a route has not set these headers itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ALWAYS.items():
                    headers.setdefault(name, value)
                # Answers with an ETag may be cached and revalidated; all others must not be stored.
                headers.setdefault("Cache-Control", "private, no-cache" if "etag" in headers else "no-store")
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", HSTS)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


SMALLEST, LARGEST = -(1 << 63), (1 << 64) - 1
"""Range of the integers that msgspec writes."""
DEEPEST = 32
"""Upper bound of a body's nesting; the deepest meaningful body has eight levels."""
LONGEST_PATH = 200
"""Length in characters to which a refusal cuts a field's name."""

Place = tuple[str, ...]


async def check_storable(request: Request) -> None:
    """Check the path, the query and, if the route takes one, the JSON body, before every route.

    PostgreSQL's text can hold neither NUL nor a lone surrogate, and the encoders here write no number of more than 64
    bits. One check covers all fields, because a list of fields would miss the next one.

    Raises:
        NotFound: the path holds a name that cannot exist.
        Invalid: a text, number or nesting cannot be stored.
    """
    for name, text in request.path_params.items():
        if "\x00" in str(text):
            raise NotFound(f"{name} {text!r} does not exist", hint="take a name from the list")
    for name, text in request.query_params.multi_items():
        if name != "cursor":  # never stored; a foreign cursor is answered 400 (`shared.storage.database`)
            _check((name,), text)
    # Forms are checked where they are read (`web.page.checked_form`).
    if request.scope["route"].body_field is not None and not is_form(request):
        # The body as FastAPI has parsed it; the route itself refuses invalid JSON.
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            body = None
        check_body(body)


def check_body(body: Any) -> None:
    """Refuse a JSON value that cannot be stored.

    Raises:
        Invalid: a text, number or nesting in it cannot be stored; the message names its position.
    """
    # It does not recurse, because the client chooses the depth.
    stack: list[tuple[Place, int, Any]] = [((), 0, body)]
    while stack:
        place, depth, value = stack.pop()
        _check(place, value)
        if depth == DEEPEST:
            raise Invalid(f"{_format_place(place)}: is nested more than {DEEPEST} levels deep")
        if isinstance(value, dict):
            for name, inner in value.items():
                _check(place, name)
                stack.append(((*place, name), depth + 1, inner))
        elif isinstance(value, list):
            stack += [(place, depth + 1, inner) for inner in value]


def is_form(request: Request) -> bool:
    """Return whether the body is a page's form, not JSON."""
    return request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    )


def check_text(place: Place, text: str) -> None:
    """Refuse a text that cannot be stored.

    Raises:
        Invalid: it holds NUL or a lone surrogate; the message names `place`.
    """
    if "\x00" in text:
        raise Invalid(f"{_format_place(place)}: contains the character \\u0000", hint="remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{_format_place(place)}: contains a lone surrogate, which is not valid text") from None


def _check(place: Place, value: Any) -> None:
    if isinstance(value, str):
        check_text(place, value)
    elif isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise Invalid(f"{_format_place(place)}: the number has more than 64 bits", hint="write a smaller number")


def _format_place(place: Place) -> str:
    return f"`{'.'.join(place)[:LONGEST_PATH] or 'body'}`"
