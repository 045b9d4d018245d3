"""Keyset pages: a cursor names the last row seen, so a page costs the same wherever it starts.

A cursor belongs to its list and its filters; with others it would silently leave rows out, so it is refused there.
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
"""Of a row; a forged cursor must not reach the database with more."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some rows, and where the next ones are."""

    data: list[T]
    next_cursor: str | None
    """Pass it as `cursor`; none: this is the last page."""


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What stands in a cursor."""

    scope: str
    key: tuple[int, ...]
    sorted_by: str = ""
    """What comes before the key in the order, where that is a text."""


def scope(name: str, /, **filters: str | None) -> str:
    """What cursors of this list, filtered like this, are marked with."""
    return canonical.digest([name, filters]).hex()[:12]


def page(rows: Sequence[T], limit: int, scope: str, *last: int) -> Page[T]:
    """The first `limit` of `limit + 1` rows asked for; `last` is the key of the last one kept."""
    more = len(rows) > limit
    return Page(data=list(rows[:limit]), next_cursor=encode(scope, *last) if more else None)


def encode(scope: str, *key: int, sorted_by: str = "") -> str:
    """An opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(Cursor(scope, key, sorted_by))).decode().rstrip("=")


def decode(cursor: str, scope: str, size: int) -> tuple[int, ...]:
    """The key of `size` numbers inside a cursor.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    found = _decoded(cursor, scope)
    if len(found.key) != size or not all(abs(number) <= LARGEST_KEY for number in found.key):
        raise _foreign()
    return found.key


def decode_sorted(cursor: str, scope: str) -> tuple[str, int]:
    """The text that the rows are sorted by, and the number behind it.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    (key,) = decode(cursor, scope, 1)
    sorted_by = _decoded(cursor, scope).sorted_by
    if "\x00" in sorted_by:  # PostgreSQL's text holds everything else
        raise _foreign()
    return sorted_by, key


def _decoded(cursor: str, scope: str) -> Cursor:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Cursor)
    except (binascii.Error, ValueError):
        found = Cursor(scope, ())
    if found.scope != scope:
        raise BadRequest("`cursor`: of another list, or of other filters", hint="repeat the filters of its page")
    return found


def _foreign() -> BadRequest:
    return BadRequest("`cursor`: not one of ours", hint="pass the `next_cursor` of the page before, or leave it out")
