"""Answers errors as RFC 9457 problems: a stable `type`, what is wrong in `detail`, what to do in `hint`, and the
`field`.
"""

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
from shared.access.filters import MEDIA_TYPE, PREFIX, encode_openai_error, is_openai
from shared.errors import Invalid, InvalidLine, MathragError, Unavailable
from shared.redaction import redact
from shared.storage.database import is_disk_full, is_passing, out_of_space_error

KINDS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
RETRY_AFTER_S = {"in_progress": "1", "too_many": "2", "unavailable": "2"}
_log = logging.getLogger(__name__)
UNSUPPORTED = "leave it out; docs/how-to/openai.md lists the supported fields"
_FIELD = re.compile(r"`([^`]+)`: ")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error."""

    type: str
    """`urn:mathrag:` and the kind of the error; the same kind always has the same type."""
    title: str
    status: int
    detail: str
    instance: str | None = None
    """Path of the request, if it could be read."""
    hint: str | None = None
    field: str | None = None
    """Path of the field that is wrong, such as `params.gate.tau`."""
    line: int | None = None
    """Number of the line that is wrong, from 1."""
    others: tuple[str, ...] = ()
    """Problems of further lines of an upload."""


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""
    app.add_exception_handler(MathragError, _answer_mathrag_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(SQLAlchemyError, _answer_database_error)
    app.add_exception_handler(Exception, _answer_unexpected)


def make_problem(error: MathragError, instance: str) -> Problem:
    """Return `error` as a problem."""
    match = _FIELD.match(error.message) if isinstance(error, Invalid) else None
    return Problem(
        type=PREFIX + error.kind,
        title=error.kind.replace("_", " ").capitalize(),
        status=error.status,
        detail=redact(error.message),
        instance=instance,
        hint=error.hint,
        field=match[1] if match else None,
        line=error.line if isinstance(error, InvalidLine) else None,
        others=tuple(other.message for other in error.others) if isinstance(error, InvalidLine) else (),
    )


def respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with `problem`; below `/openai/v1` in the form that OpenAI's clients read."""
    seconds = RETRY_AFTER_S.get(problem.type.removeprefix(PREFIX))
    headers = {**(headers or {}), **({"Retry-After": seconds} if seconds else {})}
    if is_openai(problem.instance or ""):
        # OpenAI's clients expect 400 where this API answers 422.
        status = 400 if problem.status == 422 else problem.status
        body = encode_openai_error(
            problem.status, problem.type.removeprefix(PREFIX), problem.detail, problem.hint, problem.field
        )
        return Response(body, status, headers, "application/json")
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


async def _answer_mathrag_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MathragError)  # noqa: S101 - registered for this class alone
    return respond(make_problem(error, request.url.path))


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = _format_path(first["loc"])
    hint = _suggest_field(request, str(first["loc"][-1])) if first["type"] == "extra_forbidden" else None
    if is_openai(request.url.path):
        return respond(make_problem(make_openai_refusal(first), request.url.path))
    return respond(make_problem(Invalid(f"`{field}`: {_format_error(first)}", hint=hint), request.url.path))


def make_openai_refusal(error: Mapping[str, Any]) -> Invalid:
    """Turn an error of pydantic in a body of OpenAI's API into a refusal; an unknown field is not supported."""
    field = _format_path(error["loc"])
    if error["type"] == "extra_forbidden" or error.get("ctx", {}).get("max_length") == 0:
        return Invalid(f"`{field}`: is not supported", hint=UNSUPPORTED)
    return Invalid(f"`{field}`: {_format_error(error)}")


def list_field_messages(error: RequestValidationError) -> dict[str, str]:
    """Return every error of the request by field; a problem names only the first."""
    return {_format_path(each["loc"]): _format_error(each) for each in reversed(error.errors())}


def _suggest_field(request: Request, name: str) -> str:
    """Suggest the field that was meant, among all that this operation's request has."""
    found = getattr(request.scope.get("route"), "dependant", None)
    fields = [*found.body_params, *found.query_params] if found else []
    known = {name for field in fields for name in _list_field_names(field.field_info.annotation)}
    return suggestions.make_hint(name, known, "see GET /openapi.json for the fields")


def _list_field_names(kind: Any) -> Iterator[str]:
    """Yield the fields of a model, and of the models in its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield name
            yield from _list_field_names(field.annotation)
    for inner in get_args(kind):
        yield from _list_field_names(inner)


def _format_path(location: tuple[Any, ...]) -> str:
    """Join the location, without FastAPI's leading "body" or "query"."""
    parts = [str(part) for part in location if not isinstance(part, int)]
    return ".".join(parts[1:]) or "body"


def _format_error(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    message: str = error.get("ctx", {}).get("error", error["msg"]) if error["type"] == "json_invalid" else error["msg"]
    return f"{message[:1].lower()}{message[1:]}"


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    if error.status_code < 400:
        return Response(status_code=error.status_code)
    kind = KINDS.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    detail = (
        f"there is no operation {request.method} {request.url.path}"
        if error.status_code in (404, 405)
        else error.detail
    )
    problem = Problem(
        type=PREFIX + kind,
        title=kind.replace("_", " ").capitalize(),
        status=error.status_code,
        detail=detail,
        instance=request.url.path,
        hint="GET /openapi.json lists the operations" if error.status_code in (404, 405) else None,
    )
    return respond(problem, {"Allow": _list_methods(request)} if error.status_code == 405 else None)


def _list_methods(request: Request) -> str:
    """Return all documented methods of this path; the router knows only those of its first matching route."""
    found = [route for route in iter_route_contexts(request.app.routes) if route.path_regex.match(request.url.path)]
    routes = [route for route in found if route.path == request.url.path] or found
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


async def _answer_database_error(request: Request, error: Exception) -> Response:
    """Answer 503: an interrupted request may have taken effect, which a repetition with its `Idempotency-Key` finds
    out.
    """
    if is_disk_full(error):
        return respond(make_problem(out_of_space_error(), request.url.path))
    if not is_passing(error):
        raise error
    _log.warning("%s %s: the database is unavailable: %s", request.method, request.url.path, error)
    away = Unavailable(
        "PostgreSQL does not answer", hint="repeat the request in a moment, with the same Idempotency-Key"
    )
    return respond(make_problem(away, request.url.path))


async def _answer_unexpected(request: Request, _: Exception) -> Response:
    """Answer 500 without the error's text, which may hold anything; the server logs it."""
    unexpected = MathragError("the orchestrator failed unexpectedly", hint="see the orchestrator's log for the error")
    return respond(make_problem(unexpected, request.url.path))
