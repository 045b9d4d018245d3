"""What comes back, for both clients: a JSON value, or the words of what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mathrag.client.errors import Failed
from mathrag.client.request import Request, T

if TYPE_CHECKING:
    import httpx2

PREFIX = "urn:mathrag:"
EVENTS = "text/event-stream"
UNREACHABLE = "start it with `mathrag up`, or set MATHRAG_URL"


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn an error of the network into `Failed`."""
    import httpx2

    try:
        yield
    except httpx2.TransportError as error:
        said = str(error) or type(error).__name__
        raise Failed("unreachable", f"no answer from {url} ({said})", hint=UNREACHABLE) from error


def decoded(request: Request[T], reply: "httpx2.Response") -> T:
    """The value of an answer that was read.

    Raises:
        Failed: it is a problem.
    """
    if reply.is_error and not (request.answers_anyway and reply.headers.get("content-type") == "application/json"):
        raise failed(reply)
    value: T = msgspec.json.decode(reply.content)
    return value


def failed(reply: "httpx2.Response") -> Failed:
    """A problem that was read, in its own words."""
    try:
        problem = msgspec.json.decode(reply.content, type=dict[str, Any])
        return Failed(problem["type"].removeprefix(PREFIX), problem["detail"], problem.get("hint"))
    except (msgspec.DecodeError, KeyError):
        return Failed("internal", f"{reply.request.url} answered {reply.status_code}", hint="is it MathRAG-Gate?")


def streamed(reply: "httpx2.Response", url: str) -> "httpx2.EventSource":
    """The events of an answer.

    Raises:
        Failed: the server has no stream.
    """
    import httpx2

    if not reply.headers.get("content-type", "").startswith(EVENTS):
        raise Failed("not_implemented", f"{url} has no stream of events")
    return httpx2.EventSource(reply)
