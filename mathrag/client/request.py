"""A request of the API as a value: both clients send the same ones, and their type says what comes back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

import msgspec

T = TypeVar("T")
Value = str | int | list[str]
"""Of a query's field; a list is the field several times."""
Json = dict[str, Any]
"""An answer of which only single fields are read, such as a report; docs/api.md has its fields."""
MOST_OF_A_PAGE = 500
"""Entries; the API gives no more at once."""
INDEXED_S = 1900.0
"""An upload answers when its indexes are built."""
JSON = {"content-type": "application/json"}
PIECE_BYTES = 1 << 16
"""Lines that are sent together; one by one, 300,000 of them took 40 s."""
LINES = {"content-type": "application/x-ndjson"}


class Page(TypedDict, Generic[T]):
    """A part of a list."""

    data: list[T]
    next_cursor: str | None


class Request(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What is sent; `T` is the JSON value of the answer, or `bytes`."""

    path: str
    method: str = "GET"
    query: Mapping[str, Value | None] = {}
    """None: the field is left out."""
    body: Any = None
    """Sent as JSON."""
    lines: Iterable[bytes] | None = None
    """JSON lines that are streamed in the place of a body."""
    headers: Mapping[str, str] = {}
    timeout_s: float | None = None
    """Longest wait for the answer; None: the client's."""
    answers_anyway: bool = False
    """Whether an error status comes with the same JSON as success."""

    def arguments(self) -> dict[str, Any]:
        """What the HTTP client takes beside method and path."""
        query = {name: value for name, value in self.query.items() if value is not None}
        found: dict[str, Any] = {"params": query, "headers": dict(self.headers)}
        if self.timeout_s is not None:
            found["timeout"] = self.timeout_s
        if self.lines is not None:
            return found | {"content": _pieces(self.lines), "headers": LINES | found["headers"]}
        if self.body is not None:
            return found | {"content": msgspec.json.encode(self.body), "headers": JSON | found["headers"]}
        return found

    def after(self, cursor: str) -> "Request[T]":
        """The same list from the next page on."""
        return msgspec.structs.replace(self, query={**self.query, "cursor": cursor})


def segment(name: str) -> str:
    """`name` as one part of a path, whatever it holds."""
    return quote(name, safe="")


def once(key: str | None) -> dict[str, str]:
    """With a key it is done once, however often it is sent."""
    return {"Idempotency-Key": key} if key else {}


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, each piece of several lines."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
