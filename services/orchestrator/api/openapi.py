"""OpenAPI of what msgspec writes: schemas from the views themselves, an example for every answer and every refusal."""

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from services.orchestrator.api import statuses
from services.orchestrator.api.problems import Problem, problem_of
from shared.access.refusals import MEDIA_TYPE

TEMPLATE = "#/components/schemas/{name}"
Responses = dict[int | str, Any]
"""What an operation answers, by status, as FastAPI takes it."""
EXAMPLES: dict[str, Any] = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "math", "index": 0, "experiment": "gate-or-not",
}  # fmt: skip
"""Of path parameters that mean the same everywhere; the others' stand in their declarations."""
BEARER: dict[str, Any] = {
    "type": "http", "scheme": "bearer", "description": "An API key, where the operator asks for keys.",
}  # fmt: skip
NO_NUL = r"^[^\x00]*$"
_components: dict[str, Any] = {}


def answers(view: Any, example: Any, *, status: int = 200, media: str = "application/json") -> Responses:
    """The `responses` of an operation that answers with `view`."""
    content = {media: {"schema": _schema(view), "example": example}}
    return {status: {"description": "As asked.", "content": content}}


def refusals(path: str, statuses_: Iterable[int], responses: Responses) -> Responses:
    """`responses` with the problems of these statuses, and of those that every operation at `path` may answer with."""
    documented = dict(responses)
    for status in sorted({*statuses.of_every_operation(path), *statuses_}):
        refusal = _refusal(status, path)
        answer = documented.get(status, refusal)
        documented[status] = {**answer, "content": {**answer.get("content", {}), **refusal["content"]}}
    return documented


def _schema(view: Any) -> Any:
    (schema,), components = msgspec.json.schema_components([view], ref_template=TEMPLATE)
    for name, component in components.items():
        if _components.setdefault(name, component) != component:
            raise ValueError(f"two views are called {name!r}; rename one of them")
    return schema


def install(app: FastAPI) -> None:
    """Have `app`'s document hold the views' schemas, and say of every operation how it answers and refuses."""
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
    # Without keys, the address is the only lock.
    document["security"] = [{"key": []}, {}]
    for route in iter_route_contexts(app.routes):
        for method in route.methods or ():
            operation = document["paths"].get(route.path, {}).get(method.lower())
            if operation is not None:
                operation["responses"] = _responses(route.responses)
                _ask(operation, schemas)
                _precondition(operation)
    schemas.update(_components)


def _responses(declared: Responses) -> dict[str, Any]:
    """As declared: FastAPI drops the nulls of examples, and adds answers that it assumes."""
    return {str(status): declared[status] for status in sorted(declared, key=str)}


def _refusal(status: int, path: str) -> dict[str, Any]:
    problem = problem_of(statuses.EXAMPLES[status], path)
    content = {MEDIA_TYPE: {"schema": _schema(Problem), "example": msgspec.to_builtins(problem)}}
    return {"description": f"{problem.title}: a problem that names the fix.", "content": content}


def _ask(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Examples of path parameters and bodies, where they are looked for."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            (parameter["example"],) = parameter["schema"].get("examples") or [EXAMPLES[parameter["name"]]]
        elif parameter["in"] == "query":
            _refuse_nul(parameter["schema"])
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if "example" not in media:
            media |= _example(media["schema"], schemas)


def _refuse_nul(schema: dict[str, Any]) -> None:
    """Say of every text what `access.values` holds it to."""
    for part in (schema, *schema.get("anyOf", ())):
        if "items" in part:
            _refuse_nul(part["items"])
        elif part.get("type") == "string" and part.keys().isdisjoint(("pattern", "enum", "const")):
            part["pattern"] = NO_NUL


def _precondition(operation: dict[str, Any]) -> None:
    """Where its absence answers 428, If-Match is needed; FastAPI would answer 422."""
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "if-match" and "428" in operation["responses"]:
            parameter["required"] = True


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Of a body: the one that its model carries, if it does."""
    choices = [schema, *schema.get("anyOf", ())]
    models = [schemas[each["$ref"].rpartition("/")[2]] for each in choices if "$ref" in each]
    return next(({"example": model["example"]} for model in models if "example" in model), {})
