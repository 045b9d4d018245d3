"""A request that is refused before any route sees it: the same problem as elsewhere, in few bytes."""

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.errors import MathragError
from shared.redaction import redacted

PREFIX = "urn:mathrag:"
MEDIA_TYPE = "application/problem+json"
HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="mathrag"'}, 429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}
"""What a client needs besides the problem."""


def problem(error: MathragError, instance: str | None = None) -> bytes:
    """`error` as a problem document; `instance` is the path that was asked for, where it is known."""
    document = {
        "type": PREFIX + error.kind,
        "title": error.kind.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": redacted(error.message),
        "instance": instance,
        "hint": error.hint,
    }
    return msgspec.json.encode({name: value for name, value in document.items() if value is not None})


async def refuse(error: MathragError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with `error`."""
    body = problem(error, scope["path"])
    await Response(body, error.status, HEADERS.get(error.status), MEDIA_TYPE)(scope, receive, send)
