"""A request that is refused before any route sees it: the same problem as elsewhere, in few bytes."""

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.errors import MathragError
from shared.telemetry.redaction import redacted

PREFIX = "urn:mathrag:"
MEDIA_TYPE = "application/problem+json"
HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="mathrag"'}, 429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}
"""What a client needs besides the problem."""


async def refuse(error: MathragError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with `error`."""
    problem = {
        "type": PREFIX + error.kind,
        "title": error.kind.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": redacted(error.message),
        "instance": scope["path"],
    }
    if error.hint is not None:
        problem["hint"] = error.hint
    body = msgspec.json.encode(problem)
    await Response(body, error.status, HEADERS.get(error.status), MEDIA_TYPE)(scope, receive, send)
