"""Requests to the API as data: both clients send them; `--print-curl` and `--dry-run` print them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from mathrag.client.errors import Failed

T = TypeVar("T")
Value = str | int | float | bool | Enum | list[str]
"""Value of a query field; a list repeats the field."""
Json = dict[str, Any]
"""An untyped answer, such as a report; docs/how-to/api.md lists its fields."""
MOST_OF_A_PAGE = 500
"""Largest number of entries per page of the API."""
INDEXED_S = 86_500.0
"""Longest wait for an upload in seconds. The server answers when the indexes are built; closing the request stops the
build."""
JSON = {"content-type": "application/json"}
IDEMPOTENCY_KEY = "Idempotency-Key"
IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE")
PIECE_BYTES = 1 << 16
"""Bytes of the pieces into which lines are joined; 300,000 lines that were sent one by one took 40 s."""
LINES = {"content-type": "application/x-ndjson"}


class Page(TypedDict, Generic[T]):
    """One page of a list, with the cursor of the next; None on the last page."""

    data: list[T]
    next_cursor: str | None


class Request(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A request; `T` is the JSON value of the answer, or `bytes`."""

    path: str
    method: str = "GET"
    query: Mapping[str, Value | None] = {}
    """Fields of the query; fields with the value None are omitted."""
    body: Any = None
    """Body, which is sent as JSON."""
    lines: Iterable[bytes] | None = None
    """JSON lines that are streamed instead of a body."""
    headers: Mapping[str, str] = {}
    timeout_s: float | None = None
    """Longest wait for the answer in seconds; None takes the client's."""
    answers_anyway: bool = False
    """An answer with an error status has the same JSON as a success."""
    explain: Callable[[Failed], Failed] | None = None
    """Changes an upload's problem to name the file and line."""
    complete: Callable[[Any], Any] | None = None
    """Adds the lines that were not sent to the answer to an upload."""
    is_idempotent: bool = False
    """Repeating the request changes nothing, although its method does not imply that."""

    @property
    def is_harmless_again(self) -> bool:
        """True if the request may be repeated when it is unknown whether it arrived."""
        return self.is_idempotent or self.method in IDEMPOTENT or IDEMPOTENCY_KEY in self.headers

    @property
    def has_gone(self) -> bool:
        """True if the body can be sent only once, because it is an iterator."""
        return isinstance(self.lines, Iterator)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the HTTP client in addition to method and path."""
        query = {name: _format_value(value) for name, value in self.query.items() if value is not None}
        found: dict[str, Any] = {"params": query, "headers": dict(self.headers)}
        if self.timeout_s is not None:
            found["timeout"] = self.timeout_s
        if self.lines is not None:
            return found | {"content": _join_lines(self.lines), "headers": LINES | found["headers"]}
        if self.body is not None:
            body = dict(self.body) if isinstance(self.body, Mapping) else self.body
            return found | {"content": msgspec.json.encode(body), "headers": JSON | found["headers"]}
        return found

    def with_limit(self, limit: int) -> "Request[T]":
        """Return the request for pages of at most `limit` entries."""
        return msgspec.structs.replace(self, query={"limit": limit, **self.query})

    def with_cursor(self, cursor: str) -> "Request[T]":
        """Return the request for the page at this cursor."""
        return msgspec.structs.replace(self, query={**self.query, "cursor": cursor})


def segment(name: str) -> str:
    """Quote `name` as one segment of a path."""
    return quote(name, safe="")


def without_none(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def make_idempotency_header(key: str | None) -> dict[str, str]:
    """Return the idempotency header, which makes repetitions of the request harmless; without a key, create one."""
    return {IDEMPOTENCY_KEY: key or str(uuid4())}


def _format_value(value: Value) -> str | list[str]:
    if isinstance(value, list):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


def _join_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into pieces of about `PIECE_BYTES`."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


class JobFilters(TypedDict, total=False):
    """Filters of a list of jobs."""

    state: str
    pipeline: str
    dataset: str
    corpus: str
    name: str
    name_contains: str
    experiment: str
    submitted_by: str
    sort: Literal["newest", "name", "state"]


class SampleFilters(TypedDict, total=False):
    """Filters of a list of samples; docs/how-to/api.md explains `differing`, `wrong` and `moved`."""

    state: Literal["ready", "waiting", "completed", "failed", "cancelled"]
    correct: bool
    ending: str
    subject: str
    level: str
    scored_by: str
    moved: bool
    text: str
    differing: bool
    wrong: bool
    noted: bool
