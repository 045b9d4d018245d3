"""Errors as RFC 9457 problems: a stable `type`, what is wrong in `detail`, what to do in `hint`, which `field`."""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from shared import suggestions
from shared.access.refusals import MEDIA_TYPE, PREFIX
from shared.errors import Invalid, InvalidLine, MathragError, Unavailable
from shared.redaction import redacted
from shared.storage.outages import is_disk_full, out_of_space, passing

KINDS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
RETRY_AFTER_S = {"in_progress": "1", "too_many": "2", "unavailable": "2"}
_log = logging.getLogger(__name__)
_FIELD = re.compile(r"`([^`]+)`: ")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error."""

    type: str
    """`urn:mathrag:` and the kind; never changes for the same kind of error."""
    title: str
    status: int
    detail: str
    instance: str | None = None
    """Path that was asked for, where it was read."""
    hint: str | None = None
    field: str | None = None
    """Path of the field that is wrong, such as `params.gate.tau`."""
    line: int | None = None
    """Number of the line that is wrong, from 1."""
    others: tuple[str, ...] = ()
    """What is wrong with further lines of an upload."""


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""
    app.add_exception_handler(MathragError, _mathrag)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(SQLAlchemyError, _database)
    app.add_exception_handler(Exception, _unexpected)


def problem_of(error: MathragError, instance: str) -> Problem:
    """The problem that says what `error` says."""
    named = _FIELD.match(error.message) if isinstance(error, Invalid) else None
    return Problem(
        type=PREFIX + error.kind,
        title=error.kind.replace("_", " ").capitalize(),
        status=error.status,
        detail=redacted(error.message),
        instance=instance,
        hint=error.hint,
        field=named[1] if named else None,
        line=error.line if isinstance(error, InvalidLine) else None,
        others=tuple(other.message for other in error.others) if isinstance(error, InvalidLine) else (),
    )


def respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """`problem` as a response."""
    seconds = RETRY_AFTER_S.get(problem.type.removeprefix(PREFIX))
    headers = {**(headers or {}), **({"Retry-After": seconds} if seconds else {})}
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


async def _mathrag(request: Request, error: Exception) -> Response:
    assert isinstance(error, MathragError)  # noqa: S101 - registered for this class alone
    return respond(problem_of(error, request.url.path))


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = _path(first["loc"])
    hint = _hint(request, str(first["loc"][-1])) if first["type"] == "extra_forbidden" else None
    return respond(problem_of(Invalid(f"`{field}`: {_words(first)}", hint=hint), request.url.path))


def field_messages(error: RequestValidationError) -> dict[str, str]:
    """Everything that is wrong, by field; a problem names only the first."""
    return {_path(each["loc"]): _words(each) for each in reversed(error.errors())}


def _hint(request: Request, name: str) -> str:
    """The field that was meant, of all that this operation's request knows."""
    found = getattr(request.scope.get("route"), "dependant", None)
    fields = [*found.body_params, *found.query_params] if found else []
    known = {name for field in fields for name in _names(field.field_info.annotation)}
    return suggestions.hint(name, known, "see GET /openapi.json for the fields")


def _names(kind: Any) -> Iterator[str]:
    """Fields of a model, and of the models in its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield name
            yield from _names(field.annotation)
    for inner in get_args(kind):
        yield from _names(inner)


def _path(location: tuple[Any, ...]) -> str:
    """Without FastAPI's "body" or "query", which says where, not what."""
    parts = [str(part) for part in location if not isinstance(part, int)]
    return ".".join(parts[1:]) or "body"


def _words(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    message: str = error.get("ctx", {}).get("error", error["msg"]) if error["type"] == "json_invalid" else error["msg"]
    return f"{message[:1].lower()}{message[1:]}"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    kind = KINDS.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    detail = f"there is no {request.method} {request.url.path}" if error.status_code in (404, 405) else error.detail
    problem = Problem(
        type=PREFIX + kind,
        title=kind.replace("_", " ").capitalize(),
        status=error.status_code,
        detail=detail,
        instance=request.url.path,
        hint="GET /openapi.json lists what there is" if error.status_code in (404, 405) else None,
    )
    return respond(problem, {"Allow": _allowed(request)} if error.status_code == 405 else None)


def _allowed(request: Request) -> str:
    """All methods of this path, as it is documented; the router knows those of its first route alone."""
    found = [route for route in iter_route_contexts(request.app.routes) if route.path_regex.match(request.url.path)]
    routes = [route for route in found if route.path == request.url.path] or found
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


async def _database(request: Request, error: Exception) -> Response:
    """What was cut off may have happened: whoever sent an `Idempotency-Key` finds out by sending it again."""
    if is_disk_full(error):
        return respond(problem_of(out_of_space(), request.url.path))
    if not passing(error):
        raise error
    _log.warning("%s %s: the database is away: %s", request.method, request.url.path, error)
    away = Unavailable("PostgreSQL does not answer", hint="send it again in a moment, with the same Idempotency-Key")
    return respond(problem_of(away, request.url.path))


async def _unexpected(request: Request, _: Exception) -> Response:
    """The server logs the error itself; its words may hold anything, so they stay there."""
    unexpected = MathragError("something went wrong that should not", hint="the orchestrator's log says where")
    return respond(problem_of(unexpected, request.url.path))
