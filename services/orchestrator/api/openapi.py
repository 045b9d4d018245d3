"""The OpenAPI document of answers that msgspec writes: schemas from the views themselves, and examples of every answer
and refusal.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from services.orchestrator.api import statuses
from services.orchestrator.api.problems import Problem, make_problem
from shared.access.filters import MEDIA_TYPE

TEMPLATE = "#/components/schemas/{name}"
Responses = dict[int | str, Any]
"""The `responses` of an operation by status, in FastAPI's form."""
EXAMPLES: dict[str, Any] = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "math", "index": 0, "experiment": "gate-or-not",
}  # fmt: skip
"""Examples of path parameters that mean the same in every path; other parameters declare their own."""
BEARER: dict[str, Any] = {
    "type": "http", "scheme": "bearer", "description": "An API key, if the operator requires keys.",
}  # fmt: skip
NO_NUL = r"^[^\x00]*$"
_components: dict[str, Any] = {}


def answers(view: Any, example: Any, *, status: int = 200, media: str = "application/json") -> Responses:
    """Return the `responses` of an operation that answers with `view`."""
    content = {media: {"schema": _make_schema(view), "example": example}}
    return {status: {"description": "The request succeeded.", "content": content}}


def refusals(path: str, statuses_: Iterable[int], responses: Responses) -> Responses:
    """Add to `responses` the problems of these statuses, and those that every operation at `path` may answer with."""
    documented = dict(responses)
    for status in sorted({*statuses.list_common_statuses(path), *statuses_}):
        refusal = _make_refusal(status, path)
        answer = documented.get(status, refusal)
        documented[status] = {**answer, "content": {**answer.get("content", {}), **refusal["content"]}}
    return documented


def _make_schema(view: Any) -> Any:
    (schema,), components = msgspec.json.schema_components([view], ref_template=TEMPLATE)
    for name, component in components.items():
        if _components.setdefault(name, component) != component:
            raise ValueError(f"two views are called {name!r}; rename one of them")
    return schema


def install(app: FastAPI) -> None:
    """Add to `app`'s OpenAPI document the views' schemas, and the answers and refusals of every operation."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        made = app.openapi_schema is not None
        document: dict[str, Any] = original()
        if not made:
            _complete(document, app)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _complete(document: dict[str, Any], app: FastAPI) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    components["securitySchemes"] = {"key": BEARER}
    # Without keys, whoever can reach the address may do everything.
    document["security"] = [{"key": []}, {}]
    for route in iter_route_contexts(app.routes):
        for method in route.methods or ():
            operation = document["paths"].get(route.path, {}).get(method.lower())
            if operation is not None:
                operation["responses"] = _list_responses(route.responses)
                _ask(operation, schemas)
                _require_precondition(operation)
    schemas.update(_components)


def _list_responses(declared: Responses) -> dict[str, Any]:
    """Return the responses as declared: FastAPI drops the nulls of examples and adds answers that it assumes."""
    return {str(status): declared[status] for status in sorted(declared, key=str)}


def _make_refusal(status: int, path: str) -> dict[str, Any]:
    problem = make_problem(statuses.EXAMPLES[status], path)
    content = {MEDIA_TYPE: {"schema": _make_schema(Problem), "example": msgspec.to_builtins(problem)}}
    return {"description": f"{problem.title}: the problem says how to fix it.", "content": content}


def _ask(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Put the examples of path parameters and bodies where readers of the document look for them."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            (parameter["example"],) = parameter["schema"].get("examples") or [EXAMPLES[parameter["name"]]]
        elif parameter["in"] == "query":
            _refuse_nul(parameter["schema"])
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if "example" not in media:
            media |= _find_example(media["schema"], schemas)


def _refuse_nul(schema: dict[str, Any]) -> None:
    """Document the pattern that `access.values` requires of every text."""
    for part in (schema, *schema.get("anyOf", ())):
        if "items" in part:
            _refuse_nul(part["items"])
        elif part.get("type") == "string" and part.keys().isdisjoint(("pattern", "enum", "const")):
            part["pattern"] = NO_NUL


def _require_precondition(operation: dict[str, Any]) -> None:
    """Mark If-Match as optional where its absence answers 428: FastAPI would answer 422 for a required header."""
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "if-match" and "428" in operation["responses"]:
            parameter["required"] = True


def _find_example(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the example of a body that its model carries, if it has one."""
    choices = [schema, *schema.get("anyOf", ())]
    models = [schemas[each["$ref"].rpartition("/")[2]] for each in choices if "$ref" in each]
    return next(({"example": model["example"]} for model in models if "example" in model), {})
