"""Decode answers for both clients: into a value, or into an exception with the problem's message."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from mathrag.client.errors import Failed, Incompatible, TooLarge, Unreachable, failure, of_status
from mathrag.client.request import Request
from mathrag.client.retries import seconds_of
from shared.errors import MathragError

if TYPE_CHECKING:
    import httpx2

A = TypeVar("A")
PREFIX = "urn:mathrag:"
EVENTS = "text/event-stream"
UNREACHABLE = "start it with `mathrag up`, or set MATHRAG_URL"
NOT_OURS = "is it MathRAG-Gate?"
OTHER_RELEASE = "is it MathRAG-Gate, and of this client's release (`mathrag --version`)? update the older of both"
LARGEST = 256 << 20
"""Bytes of an answer that is held in memory; the API's own are far smaller, so more comes from something else."""


class Reply(NamedTuple):
    """An answer that was read completely."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


class Reading:
    """Collects an answer piece by piece, and refuses one that is too large."""

    def __init__(self, reply: "httpx2.Response") -> None:
        self._reply = reply
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            TooLarge: the answer is larger than any of the API's.
        """
        self._size += len(piece)
        if self._size > LARGEST:
            raise TooLarge("too_large", f"{self._reply.url} answers with more than {LARGEST >> 20} MiB", hint=NOT_OURS)
        self._pieces.append(piece)

    def make_reply(self) -> Reply:
        """Return the complete answer."""
        return Reply(self._reply.status_code, self._reply.headers, b"".join(self._pieces), str(self._reply.url))


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Turn an error of the network into `Unreachable`, and one of the uploaded data into `Failed`."""
    import httpx2

    try:
        yield
    except MathragError as error:
        raise failure(error) from error
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        reason = str(error) or type(error).__name__
        unreachable = Unreachable("unreachable", f"no answer from {url} ({reason})", hint=UNREACHABLE)
        unreachable.never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        unreachable.ran_out_of_time = isinstance(error, httpx2.TimeoutException)
        raise unreachable from error


def require_success(request: Request[Any], reply: Reply) -> Reply:
    """Return the answer if it is a success.

    Raises:
        Failed: it is a problem or a redirection.
    """
    success = 200 <= reply.status < 300
    if success or (request.answers_anyway and reply.headers.get("content-type") == "application/json"):
        return reply
    problem = read_problem(reply)
    raise request.explain(problem) if request.explain else problem


def decode_answer(request: Request[Any], reply: Reply, answer: type[A]) -> A:
    """Decode the answer to a request.

    Raises:
        Incompatible: it is not of the type that the API returns.
    """
    value: A = decode(reply.content, answer, reply.url)
    return request.complete(value) if request.complete else value


def json(reply: Reply) -> Any:
    """Return the JSON value of an answer without converting it."""
    return decode(reply.content, Any, reply.url)


def decode(content: bytes, answer: Any, url: str) -> Any:
    """Decode an answer, or a line of it.

    Raises:
        Incompatible: it is not JSON, or not of this type.
    """
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.ValidationError as error:
        message = f"{url} answers with what this client cannot read: {error}"
        raise Incompatible("incompatible", message, hint=OTHER_RELEASE) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Incompatible("incompatible", f"{url} does not answer with JSON ({error})", hint=NOT_OURS) from error


class _Problem(msgspec.Struct):
    """The fields of a problem that are read; a field of an unexpected kind must not hide the others."""

    type: str
    detail: str
    hint: str | None = None
    field: object = None
    line: object = None
    others: object = None


def read_problem(reply: Reply) -> Failed:
    """Return the exception for an answer that is a problem."""
    found = _read_problem(reply)
    found.retry_after_s = seconds_of(reply.headers.get("retry-after"))
    return found


def _read_problem(reply: Reply) -> Failed:
    if 300 <= reply.status < 400:
        to = reply.headers.get("location", "nowhere")
        message = f"{reply.url} redirects to {to}, where the API key must not be sent"
        return of_status(reply.status, "redirected", message, hint="give the client the address of the service itself")
    try:
        problem = msgspec.json.decode(reply.content, type=_Problem)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return of_status(reply.status, "internal", f"{reply.url} answered {reply.status}", hint=NOT_OURS)
    found = of_status(reply.status, problem.type.removeprefix(PREFIX), problem.detail, problem.hint)
    found.field = problem.field if isinstance(problem.field, str) else None
    found.line = problem.line if isinstance(problem.line, int) else None
    found.others = tuple(map(str, problem.others)) if isinstance(problem.others, list) else ()
    return found


def read_events(reply: "httpx2.Response", url: str) -> "httpx2.EventSource":
    """Return the events of a streamed answer.

    Raises:
        Failed: the answer is not a stream of events.
    """
    import httpx2

    if not reply.headers.get("content-type", "").startswith(EVENTS):
        raise Failed("not_implemented", f"{url} has no stream of events")
    return httpx2.EventSource(reply)
