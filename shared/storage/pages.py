"""Keyset pages: a cursor names the last row seen, so a page costs the same wherever it starts."""

import base64
import binascii
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from shared.errors import Invalid

T = TypeVar("T")
DEFAULT = 50
LARGEST = 500


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some rows, and where the next ones are."""

    data: list[T]
    next_cursor: str | None
    """Pass it as `cursor`; none: this is the last page."""


def page(rows: Sequence[T], limit: int, *last: int) -> Page[T]:
    """The first `limit` of `limit + 1` rows asked for; `last` is the key of the last one kept."""
    more = len(rows) > limit
    return Page(data=list(rows[:limit]), next_cursor=encode(*last) if more else None)


def encode(*key: int) -> str:
    """An opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode(cursor: str, size: int) -> tuple[int, ...]:
    """The key of `size` numbers inside a cursor.

    Raises:
        Invalid: it is not one that we gave.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=tuple[int, ...])
    except (binascii.Error, ValueError):
        key = ()
    if len(key) != size or not all(abs(number) < 1 << 63 for number in key):
        raise Invalid("`cursor`: not one of ours", hint="pass the `next_cursor` of the page before, or leave it out")
    return key
