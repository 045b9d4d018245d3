"""Shared by all routes: queries, statuses, problems, idempotency keys, entity tags and the OpenAPI document."""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from mathrag import errors
from mathrag.errors import BadRequest, Invalid, InvalidLine, MathragError, PreconditionRequired, Unavailable
from mathrag.messages import make_hint, redact
from services.orchestrator.access.identity import declare_scope
from services.orchestrator.api.examples import make_example
from services.orchestrator.deps import RequestDeps
from shared import canonical
from shared.access.filters import MEDIA_TYPE, OPEN, PREFIX, encode_openai_error, is_openai
from shared.fields import read_docstrings
from shared.shapes import Scope
from shared.storage import database
from shared.storage.database import KeyedRequest, is_disk_full, is_passing, out_of_space_error

Responses = dict[int | str, Any]
"""The `responses` of an operation by status, in FastAPI's form."""
Handler = TypeVar("Handler", bound=Callable[..., Any])
Limit = Annotated[int, Query(ge=1, le=database.LARGEST, description="Upper bound of the rows on a page.")]


def route(
    router: APIRouter,
    method: str,
    path: str,
    scope: Scope | None,
    summary: str,
    responses: Responses,
    *,
    refuses: tuple[int, ...] = (),
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of `method` `path`.

    Args:
        scope: scope that a key must have; None answers everybody.
        responses: answers with schema and example (see `answers`).
        refuses: statuses of its problems, besides those of every route.
        options: further arguments of FastAPI's `add_api_route`, such as the status. The `name` of a handler that was
            renamed keeps its operation id.
    """

    def add(handler: Handler) -> Handler:
        declare_scope(handler, scope)
        documented = refusals(router.prefix + path, refuses, responses)
        # Routes outside the document, such as `/docs`, are pages: other programs add parameters to their addresses.
        checks = [Depends(check_query)] if router.include_in_schema else []
        router.add_api_route(
            path, handler, methods=[method], summary=summary, responses=documented, dependencies=checks, **options
        )
        return handler

    return add


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answer with `value` as msgspec writes it."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


LONGEST_NAME = 200
"""Length in characters to which a refusal cuts a parameter's name."""


async def check_query(request: Request) -> None:
    """Check the names in the query against those that the matched route declares: nothing of a request is ignored.

    Raises:
        Invalid: the route does not declare one of them, or one that is not a list is given more than once.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if not given:
        return
    route = request.scope["route"]
    operation, declared = f"{request.method} {route.path}", _list_declared(route.dependant)
    for name, times in given.items():
        shown = name[:LONGEST_NAME]
        if name not in declared:
            listed = f"{operation} takes {', '.join(sorted(declared)) or 'none'}"
            hint = make_hint(shown, declared, listed)
            raise Invalid(f"`{shown}`: unknown query parameter", hint=hint)
        if times > 1 and not declared[name]:
            raise Invalid(f"`{shown}`: was given {times} times", hint="give it once")


def _list_declared(dependant: Dependant) -> dict[str, bool]:
    """Return the query parameters of a route and of its dependencies by name, and whether each may be repeated."""
    declared: dict[str, bool] = {}
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            declared |= {each.alias or name: _is_list(each.annotation) for name, each in kind.model_fields.items()}
        else:
            declared[field.alias] = _is_list(kind)
    for each in dependant.dependencies:
        declared |= _list_declared(each)
    return declared


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(map(_is_list, get_args(kind)))


ANYWHERE = (400, 403, 408, 413, 422, 431, 500, 503, 507)
"""Statuses that are answered before a route is reached, or by any route: a body that is not HTTP, a web page of another
origin or a key without the scope, a request that is too slow, too long or holds invalid text, a header that is too
long, an unexpected failure, too many connections, an unavailable service, and a full disk.
"""

PROBLEM_EXAMPLES: dict[int, MathragError] = {
    error.status: error
    for error in (
        errors.BadRequest("`cursor`: is not valid", hint="pass the `next_cursor` of the previous page, or none"),
        errors.Unauthorized("an API key is required", hint="send `Authorization: Bearer KEY`"),
        errors.Forbidden("this API key lacks the scope 'operate'", hint="mathrag key create NAME --scope operate"),
        errors.NotFound("there is nothing of this name", hint="list the names with GET /v1/jobs"),
        errors.TimedOut("no byte of the body came for 30 s (`limits.idle_s`)", hint="send it again"),
        errors.Conflict("the name is taken, or the state does not allow it", hint="choose another name"),
        errors.PreconditionFailed("the job has version 4, you saw 3", hint="GET it again"),
        errors.TooLarge("a request must declare its length", hint="see `limits.body_bytes`"),
        errors.Invalid("`params.gate.tua`: there is no such field", hint="fields of `params.gate`: items, tau, …"),
        errors.PreconditionRequired("`If-Match`: is required here", hint="send the ETag of your last GET, or *"),
        errors.TooMany("the limit of concurrent jobs is reached", hint="wait until one of them ends"),
        errors.HeaderTooLarge("a header may have 65536 bytes (`limits.header_bytes`)", hint="send fewer cookies"),
        errors.MathragError("the orchestrator failed unexpectedly", hint="see the orchestrator's log for the error"),
        errors.Unavailable("a required service does not answer", hint="see GET /readyz"),
        errors.OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="free space, and send it again"),
    )
}  # fmt: skip


def list_common_statuses(path: str) -> tuple[int, ...]:
    """Return the statuses with which any operation at `path` may refuse; 401 only if the operator requires keys."""
    return ANYWHERE if path in OPEN else (*ANYWHERE, 401)


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
    """The kind of the error in words."""
    status: int
    """HTTP status."""
    detail: str
    """The error, with the wrong value."""
    instance: str | None = None
    """Path of the request; null if it could not be read."""
    hint: str | None = None
    """How to fix the request; null if there is no hint."""
    field: str | None = None
    """Path of the wrong field, such as `params.gate.tau`; null if no single field is wrong."""
    line: int | None = None
    """Number of the wrong line, from 1; null if the body has no lines."""
    others: tuple[str, ...] = ()
    """Problems of further lines of the upload."""


def answer_problems(app: FastAPI) -> None:
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
    if is_openai(request.url.path):
        return respond(make_problem(make_openai_refusal(first), request.url.path))
    hint = _suggest_value(first)
    if first["type"] == "extra_forbidden":
        dependant = request.scope["route"].dependant
        fields = [*dependant.body_params, *dependant.query_params]
        known = {name for field in fields for name in _list_field_names(field.field_info.annotation)}
        hint = make_hint(str(first["loc"][-1]), known, "see GET /openapi.json for the fields")
    refusal = Invalid(f"`{_format_path(first['loc'])}`: {_format_error(first)}{_quote_input(first)}", hint=hint)
    return respond(make_problem(refusal, request.url.path))


LONGEST_INPUT = 60
"""Characters of a value that a refusal quotes."""


def make_openai_refusal(error: Mapping[str, Any]) -> Invalid:
    """Turn an error of pydantic in a body of OpenAI's API into a refusal; an unknown field is not supported."""
    field = _format_path(error["loc"])
    if error["type"] == "extra_forbidden" or error.get("ctx", {}).get("max_length") == 0:
        return Invalid(f"`{field}`: is not supported", hint=UNSUPPORTED)
    return Invalid(f"`{field}`: {_format_error(error)}")


def list_field_messages(error: RequestValidationError) -> dict[str, str]:
    """Return every error of the request by field; a problem names only the first."""
    return {_format_path(each["loc"]): _format_error(each) for each in reversed(error.errors())}


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


def _suggest_value(error: Mapping[str, Any]) -> str:
    """Return what to write instead, as far as the error knows it."""
    match error["type"], error.get("ctx", {}):
        case "less_than_equal", {"le": most}:
            return f"choose at most {most}"
        case "greater_than_equal", {"ge": least}:
            return f"choose at least {least}"
        case "literal_error" | "enum", {"expected": values}:
            return f"choose {values}"
    return "correct it as the API's reference says (docs/reference/api.md, GET /openapi.json)"


def _quote_input(error: Mapping[str, Any]) -> str:
    """Return which value was given, if it is a short one that has the wrong value."""
    given = error.get("input")
    if error["type"] in ("extra_forbidden", "missing", "json_invalid") or not isinstance(given, str | int | float):
        return ""
    return f", not {given!r}" if len(str(given)) <= LONGEST_INPUT else ""


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    if error.status_code < 400:
        return Response(status_code=error.status_code)
    kind = KINDS.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    title, detail, hint, headers = kind.replace("_", " ").capitalize(), error.detail, None, None
    if error.status_code in (404, 405):
        detail = f"{request.method} {request.url.path} is not an operation of this API"
        hint = "GET /openapi.json lists the operations"
    if error.status_code == 405:
        # All documented methods of this path: the router knows only those of its first matching route.
        found = [each for each in iter_route_contexts(request.app.routes) if each.path_regex.match(request.url.path)]
        routes = [each for each in found if each.path == request.url.path] or found
        headers = {"Allow": ", ".join(sorted({method for each in routes for method in each.methods or ()}))}
    problem = Problem(
        type=PREFIX + kind, title=title, status=error.status_code, detail=detail, instance=request.url.path, hint=hint
    )
    return respond(problem, headers)


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


TEMPLATE = "#/components/schemas/{name}"
EXAMPLES: dict[str, Any] = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "math", "index": 0, "experiment": "gate-or-not",
}  # fmt: skip
"""Examples of path parameters that mean the same in every path; other parameters declare their own."""
BEARER: dict[str, Any] = {
    "type": "http", "scheme": "bearer", "description": "An API key, if the operator requires keys.",
}  # fmt: skip
NO_NUL = r"^[^\x00]*$"
SUCCESSES = {201: "Created. ", 202: "Accepted; the service continues after the response. "}
"""Beginning of the description of an answer, by status."""
NOUNS = {
    "corpora": "corpus", "datasets": "dataset", "graphs": "graph", "labels": "label set", "models": "model",
    "pipelines": "pipeline", "prompts": "prompt", "rules": "rule bank",
}  # fmt: skip
"""What a `name` in a path or query stands for, by the part of the path after the version."""
PARAMETERS = {
    "cursor": "The `next_cursor` of the previous page; without it, the first page.",
    "device": "Id of the device, such as `cpu:0`, or the UUID of a GPU.",
    "document": "Hash of the document.",
    "experiment": "Id of the experiment, its name, or the first characters of its id.",
    "index": "Index of the item in the dataset, from 0.",
    "job": "Id of the job, its name, or the first characters of its id (four or more).",
    "repeat": "Number of the repeat, from 0.",
}
"""Descriptions of parameters that mean the same in every operation; other parameters declare their own."""
_components: dict[str, Any] = {}
_views: list[Any] = []


def answers(view: Any, example: Any = None, *, status: int = 200, media: str = "application/json") -> Responses:
    """Return the `responses` of an operation that answers with `view`; its example is that of `examples.json`."""
    example = make_example(view) if example is None else example
    content = {media: {"schema": _make_schema(view), "example": example}}
    return {status: {"description": SUCCESSES.get(status, "") + _describe_view(view, media), "content": content}}


def _describe_view(view: Any, media: str) -> str:
    """Describe an answer by its kind, or by the first sentence of the view's docstring."""
    origin = get_origin(view) or view
    if origin in (list, database.Page):
        return f"A {'list' if origin is list else 'page'} of `{get_args(view)[0].__name__}` objects."
    if not issubclass(origin, msgspec.Struct):
        return f"The content as `{media}`."
    if media.endswith("ndjson"):
        return f"JSON lines with one `{origin.__name__}` object each."
    return " ".join((origin.__doc__ or "").partition("\n\n")[0].split())


def refusals(path: str, statuses_: Iterable[int], responses: Responses) -> Responses:
    """Add to `responses` the problems of these statuses, and those that every operation at `path` may answer with."""
    documented = dict(responses)
    if 201 in documented and 200 in documented:
        documented[200] = {**documented[200], "description": f"Exists already. {documented[200]['description']}"}
    for status in sorted({*list_common_statuses(path), *statuses_}):
        problem = make_problem(PROBLEM_EXAMPLES[status], path)
        content = {MEDIA_TYPE: {"schema": _make_schema(Problem), "example": msgspec.to_builtins(problem)}}
        refusal: dict[str, Any] = {
            "description": f"{problem.title}: the problem says how to fix it.",
            "content": content,
        }
        answer = documented.get(status, refusal)
        documented[status] = {**answer, "content": {**answer.get("content", {}), **refusal["content"]}}
    return documented


def _make_schema(view: Any) -> Any:
    (schema,), components = msgspec.json.schema_components([view], ref_template=TEMPLATE)
    for name, component in components.items():
        if _components.setdefault(name, component) != component:
            raise ValueError(f"two views are called {name!r}; rename one of them")
    _views.append(view)
    return schema


def _describe_components() -> dict[str, Any]:
    """Return the views' schemas with the docstrings of the structs' attributes as descriptions.

    The sources are read when the document is first asked for, so that the start of the process takes no longer.
    """
    structs: dict[str, type[msgspec.Struct]] = {}
    for view in _views:
        _collect_structs(view, structs)
    described = deepcopy(_components)
    for name, schema in described.items():
        # The name of a generic struct's schema has the arguments behind an underscore, such as `Page_Job_`.
        struct = structs.get(name.partition("_")[0])
        if struct is None or "properties" not in schema:
            continue
        texts, config = read_docstrings(struct), struct.__struct_config__
        for field in msgspec.structs.fields(struct):
            shown = schema["properties"][field.encode_name]
            # A group of parameters has no docstring of its own, but that of its struct.
            group = _components.get(shown.get("$ref", "").rpartition("/")[2], {}).get("description", "")
            if text := texts.get(field.name) or group.partition("\n\n")[0]:
                shown.setdefault("description", " ".join(text.split()))
        if config.tag is not None:
            schema["properties"][config.tag_field]["description"] = "Tells which kind of object this is."
    return described


def _collect_structs(kind: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    """Add to `found` by name the structs that values of this type consist of."""
    for inner in get_args(kind):
        _collect_structs(inner, found)
    struct = get_origin(kind) or kind
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct) and struct.__name__ not in found:
        found[struct.__name__] = struct
        for field in msgspec.structs.fields(struct):
            _collect_structs(field.type, found)


def document_operations(app: FastAPI) -> None:
    """Add to `app`'s OpenAPI document the views' schemas, and the answers and refusals of every operation."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document: dict[str, Any] = original()
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        components["securitySchemes"] = {"key": BEARER}
        # Without keys, every client that can reach the address may do everything.
        document["security"] = [{"key": []}, {}]
        for route in iter_route_contexts(app.routes):
            for method in route.methods or ():
                operation = document["paths"].get(route.path, {}).get(method.lower())
                if operation is not None:
                    # As declared: FastAPI drops the nulls of examples and adds answers that it assumes.
                    declared = route.responses
                    operation["responses"] = {str(status): declared[status] for status in sorted(declared, key=str)}
                    noun = NOUNS.get(str(route.path).removeprefix("/v1/").partition("/")[0], "")
                    _complete_request(operation, schemas, noun)
        schemas.update(_describe_components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _complete_request(operation: dict[str, Any], schemas: dict[str, Any], noun: str) -> None:
    """Describe the shared parameters, and put the examples of path parameters and bodies where readers look for them.

    Args:
        noun: what a parameter `name` names.
    """
    for parameter in operation.get("parameters", ()):
        text = f"Name of the {noun}." if parameter["name"] == "name" else PARAMETERS.get(parameter["name"])
        if text is not None:
            parameter.setdefault("description", text)
        if parameter["in"] == "path":
            (parameter["example"],) = parameter["schema"].get("examples") or [EXAMPLES[parameter["name"]]]
        elif parameter["in"] == "query":
            _refuse_nul(parameter["schema"])
        elif parameter["name"] == "if-match" and "428" in operation["responses"]:
            # The route declares it as optional, because FastAPI would answer 422 where a required header is absent.
            parameter["required"] = True
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if "example" not in media:
            schema = media["schema"]
            choices = [schema, *schema.get("anyOf", ())]
            models = [schemas[each["$ref"].rpartition("/")[2]] for each in choices if "$ref" in each]
            media |= next(({"example": model["example"]} for model in models if "example" in model), {})


def _refuse_nul(schema: dict[str, Any]) -> None:
    """Document the pattern that `access.values` requires of every text."""
    for part in (schema, *schema.get("anyOf", ())):
        if "items" in part:
            _refuse_nul(part["items"])
        elif part.get("type") == "string" and part.keys().isdisjoint(("pattern", "enum", "const")):
            part["pattern"] = NO_NUL


_KEY = re.compile(r"[\x21-\x7e\xa0-\xff](?:[\x20-\x7e\xa0-\xff]{0,254})")


def _check_key(
    deps: RequestDeps,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Makes the request safe to repeat: the same key and body get the first result again.",
            examples=["7f2c-first"],
        ),
    ] = None,
) -> str | None:
    if idempotency_key is None:
        if deps.settings.require_idempotency_key:
            raise BadRequest(
                "`Idempotency-Key`: is required here",
                hint="send a unique text with each new request, such as a UUID",
            )
        return None
    return check_key(idempotency_key)


def check_key(key: str) -> str:
    """Return `key` after checking it.

    Raises:
        BadRequest: it is empty, too long, or has control characters.
    """
    if not _KEY.fullmatch(key):
        raise BadRequest("`Idempotency-Key`: must have 1 to 255 characters, and no control characters")
    return key


IdempotencyKey = Annotated[str | None, Depends(_check_key)]


def make_keyed_request(key: str | None, operation: str, request: Any) -> KeyedRequest | None:
    """Return the request that `key` stands for: this operation with this body, in the caller's project. None without a
    key.
    """
    if key is None:
        return None
    project = database.get_project()
    own = operation if project is None else f"{operation} of {project}"
    return KeyedRequest(operation=own, key=key, body_hash=canonical.digest(request))


# Entity tags, which spare a client a second read and prevent it from changing a state that it has not seen.
#
# The tag of a job, or of the configuration, is `"<version>-<digest>"`. The digest covers everything that is shown, so
# that readers notice progress. A change is checked against the version alone, which progress does not alter. The tag
# of a list is its digest.

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:\s*,\s*{_TAG})*")
_VERSION = re.compile(r'"(\d{1,9})-[0-9a-f]{16}"')


class KnownTags(NamedTuple):
    """Tags that the client has; `anything` means `*`, which matches any existing state."""

    tags: frozenset[str]
    anything: bool = False


def parse_tags(header: str, name: str) -> KnownTags:
    """Parse the tags in a header.

    Raises:
        BadRequest: the header holds something other than tags.
    """
    if header.strip() == "*":
        return KnownTags(frozenset(), anything=True)
    if not _TAGS.fullmatch(header.strip()):
        raise BadRequest(f'`{name}`: must be * or tags in double quotes, such as "3-5d0c91be77aac0de"')
    return KnownTags(frozenset(re.findall(_TAG, header)))


def _read_known_tags(
    if_none_match: Annotated[
        str | None, Header(description="Tags that you have seen; the response is 304 if one of them is current.")
    ] = None,
) -> KnownTags:
    return NOTHING if if_none_match is None else parse_tags(if_none_match, "If-None-Match")


def _parse_versions(
    if_match: Annotated[
        str | None, Header(description="Tag that you have seen; the response is 412 if the version has changed.")
    ] = None,
) -> frozenset[int] | None:
    known = None if if_match is None else parse_tags(if_match, "If-Match")
    return None if known is None or known.anything else get_versions(known)


def _require_versions(
    versions: Annotated[frozenset[int] | None, Depends(_parse_versions)],
    if_match: Annotated[str | None, Header()] = None,
) -> frozenset[int] | None:
    if if_match is None:
        raise PreconditionRequired("`If-Match`: is required here", hint="send the ETag of your last GET, or *")
    return versions


NOTHING = KnownTags(frozenset())
UNCHANGED: dict[int | str, Any] = {
    304: {"description": "Nothing has changed: the tag is among those in `If-None-Match`."}
}
"""Further `responses` of an operation that reads `Seen`."""

Seen = Annotated[KnownTags, Depends(_read_known_tags)]
Versions = Annotated[frozenset[int] | None, Depends(_parse_versions)]
"""Versions that the client accepts; None accepts any."""
RequiredVersions = Annotated[frozenset[int] | None, Depends(_require_versions)]


def get_versions(known: KnownTags) -> frozenset[int]:
    """Return the versions that strong tags name; a weak or foreign tag matches none."""
    return frozenset(int(found[1]) for tag in known.tags if (found := _VERSION.fullmatch(tag)))


def make_tag(body: bytes, version: int | None = None) -> str:
    """Return the strong tag of `body`; `version` is that of a job or configuration."""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f'"{digest}"' if version is None else f'"{version}-{digest}"'


def respond_with_tag(
    value: Any,
    *,
    version: int | None = None,
    seen: KnownTags = NOTHING,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Answer with `value` as JSON and its tag, or with 304 and no body if the client has seen it."""
    body = msgspec.json.encode(value)
    current = make_tag(body, version)
    headers = {**(headers or {}), "ETag": current}
    if seen.anything or current in {known.removeprefix("W/") for known in seen.tags}:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "application/json")
