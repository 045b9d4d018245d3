"""Values that cannot be kept, wherever they stand in a request: refused before every route, with the field's name.

PostgreSQL's text holds neither NUL nor half a character (a lone surrogate), and no encoder here writes a number of more
than 64 bits. One check for all fields: a list of them would lack the next one.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import Request

from shared.errors import Invalid, NotFound

SMALLEST, LARGEST = -(1 << 63), (1 << 64) - 1
"""Of the whole numbers that msgspec writes."""
DEEPEST = 32
"""Levels of a body; the deepest that has a meaning has eight."""
LONGEST_PATH = 200
"""Characters of a field's name that a refusal repeats."""

Place = tuple[str, ...]


async def storable(request: Request) -> None:
    """Check path, query and, where the route takes one, the JSON body.

    Raises:
        NotFound: the path names what can have no such name.
        Invalid: a text, number or nesting that cannot be kept.
    """
    for name, text in request.path_params.items():
        if "\x00" in str(text):
            raise NotFound(f"there is no {name} {text!r}", hint="the list has all that there are")
    for name, text in request.query_params.multi_items():
        if name != "cursor":  # never stored; whatever is none of ours is 400 (`shared.storage.pages`)
            _check((name,), text)
    # A form is checked where it is read (`web.page.checked_form`).
    if request.scope["route"].body_field is not None and not is_form(request):
        for place, value in _values(await _body(request)):
            _check(place, value)


def is_form(request: Request) -> bool:
    """Whether a page's form is sent, and no JSON."""
    return request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    )


async def _body(request: Request) -> Any:
    """As FastAPI has read it already; what is no JSON is refused by the route itself."""
    try:
        return await request.json()
    except (ValueError, RecursionError):
        return None


def _values(body: Any) -> Iterator[tuple[Place, Any]]:
    """Every name and value with its place, without recursion: the depth is the client's."""
    stack: list[tuple[Place, int, Any]] = [((), 0, body)]
    while stack:
        place, depth, value = stack.pop()
        yield place, value
        if depth == DEEPEST:
            raise Invalid(f"{_field(place)}: is nested more than {DEEPEST} levels deep")
        if isinstance(value, dict):
            for name, inner in value.items():
                yield place, name
                stack.append(((*place, name), depth + 1, inner))
        elif isinstance(value, list):
            stack += [(place, depth + 1, inner) for inner in value]


def check_text(place: Place, text: str) -> None:
    """Refuse a text that cannot be kept.

    Raises:
        Invalid: it holds NUL or a lone surrogate; the message names `place`.
    """
    if "\x00" in text:
        raise Invalid(f"{_field(place)}: holds the character \\u0000", hint="remove it")
    if not _is_whole(text):
        raise Invalid(f"{_field(place)}: holds half a character (a lone surrogate), which is no text")


def _check(place: Place, value: Any) -> None:
    if isinstance(value, str):
        check_text(place, value)
    elif isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise Invalid(f"{_field(place)}: is a number of more than 64 bits", hint="write a smaller one")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(place: Place) -> str:
    return f"`{'.'.join(place)[:LONGEST_PATH] or 'body'}`"
