"""Answers to requests that are refused before any route sees them, in the form of all other errors."""

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.errors import MathragError
from shared.redaction import redact

PREFIX = "urn:mathrag:"
MEDIA_TYPE = "application/problem+json"
OPENAI = "/openai/v1"
"""Path prefix of the OpenAI-compatible API."""
HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="mathrag"'}, 429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}
"""Headers that a client needs besides the problem, by status."""


def encode_problem(error: MathragError, instance: str | None = None) -> bytes:
    """Encode `error` as a problem document; `instance` is the requested path, if known."""
    document = {
        "type": PREFIX + error.kind,
        "title": error.kind.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": redact(error.message),
        "instance": instance,
        "hint": error.hint,
    }
    return msgspec.json.encode({name: value for name, value in document.items() if value is not None})


def is_openai(path: str) -> bool:
    """Tell whether errors at this path have OpenAI's form."""
    return path.startswith(f"{OPENAI}/")


def encode_openai_error(
    status: int, kind: str, message: str, hint: str | None = None, field: str | None = None
) -> bytes:
    """Encode an error in OpenAI's form; `field` is the wrong one, if known."""
    text = redact(message) + (f" ({hint})" if hint else "")
    family = "invalid_request_error" if status < 500 else "server_error"
    return msgspec.json.encode({"error": {"message": text, "type": family, "param": field, "code": kind}})


async def refuse(error: MathragError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with `error`, in the form of its path's API."""
    path, headers = scope["path"], HEADERS.get(error.status)
    if is_openai(path):
        body = encode_openai_error(error.status, error.kind, error.message, error.hint)
        response = Response(body, error.status, headers, "application/json")
    else:
        response = Response(encode_problem(error, path), error.status, headers, MEDIA_TYPE)
    await response(scope, receive, send)
