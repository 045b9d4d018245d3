"""Keyset pagination: a cursor names the last row seen, so every page costs the same.

A cursor is valid only for its list and filters; with others it would silently skip rows, so it is refused.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from shared.contracts import canonical
from shared.errors import BadRequest

T = TypeVar("T")
DEFAULT = 50
LARGEST = 500
LARGEST_KEY = (1 << 31) - 1
"""Largest key of a row; a forged cursor with a larger one is refused before it reaches the database."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of rows with the cursor of the next one."""

    data: list[T]
    next_cursor: str | None
    """Pass it as `cursor` for the next page; null on the last one."""


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content of a cursor."""

    scope: str
    key: tuple[int, ...]
    sorted_by: str = ""
    """The text that precedes the key in the sort order, if any."""


def cursor_scope(name: str, /, **filters: str | None) -> str:
    """Return the mark of this list's cursors with these filters."""
    return canonical.digest([name, filters]).hex()[:12]


def make_page(rows: Sequence[T], limit: int, scope: str, *last: int) -> Page[T]:
    """Make a page of the first `limit` of `limit + 1` fetched rows; `last` is the key of the last row kept."""
    more = len(rows) > limit
    return Page(data=list(rows[:limit]), next_cursor=encode_cursor(scope, *last) if more else None)


def encode_cursor(scope: str, *key: int, sorted_by: str = "") -> str:
    """Encode an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(Cursor(scope, key, sorted_by))).decode().rstrip("=")


def decode_cursor(cursor: str, scope: str, size: int) -> tuple[int, ...]:
    """Decode a cursor's key of `size` numbers.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    found = _decode(cursor, scope)
    if len(found.key) != size or not all(abs(number) <= LARGEST_KEY for number in found.key):
        raise _make_invalid_cursor()
    return found.key


def decode_sorted_cursor(cursor: str, scope: str) -> tuple[str, int]:
    """Decode the sort text and the number after it.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    (key,) = decode_cursor(cursor, scope, 1)
    sorted_by = _decode(cursor, scope).sorted_by
    if "\x00" in sorted_by:  # the only character that PostgreSQL's text cannot hold
        raise _make_invalid_cursor()
    return sorted_by, key


def _decode(cursor: str, scope: str) -> Cursor:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Cursor)
    except (binascii.Error, ValueError):
        found = Cursor(scope, ())
    if found.scope != scope:
        raise BadRequest("`cursor`: belongs to another list or other filters", hint="repeat the filters of its page")
    return found


def _make_invalid_cursor() -> BadRequest:
    return BadRequest("`cursor`: is not valid", hint="pass the `next_cursor` of the previous page, or leave it out")
