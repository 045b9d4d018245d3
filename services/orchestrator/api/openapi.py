"""OpenAPI of what msgspec writes: schemas from the views themselves, an example for every answer and every refusal."""

from typing import Any

import msgspec
from fastapi import FastAPI

from services.orchestrator.api import statuses
from services.orchestrator.api.problems import Problem, problem_of
from shared.access.refusals import MEDIA_TYPE

TEMPLATE = "#/components/schemas/{name}"
WILDCARD = "4XX"
"""Stands for what `statuses` says, until the document is made; and keeps FastAPI from adding a 422 of its own."""
ASSUMED = "Successful Response"
EXAMPLES: dict[str, Any] = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "math", "device": "cpu:0", "index": 0,
}  # fmt: skip
"""Of path parameters, which mean the same everywhere."""
BEARER: dict[str, Any] = {
    "type": "http", "scheme": "bearer", "description": "An API key, where the operator asks for keys.",
}  # fmt: skip
_components: dict[str, Any] = {}


def answers(view: Any, example: Any, *, status: int = 200, media: str = "application/json") -> dict[int | str, Any]:
    """The `responses` of an operation that answers with `view`, or with a problem."""
    content = {media: {"schema": _schema(view), "example": example}}
    return {status: {"description": "As asked.", "content": content}, WILDCARD: {"description": "A problem."}}


def refuses() -> dict[int | str, Any]:
    """The `responses` of an operation that only answers with problems."""
    return {WILDCARD: {"description": "A problem."}}


def _schema(view: Any) -> Any:
    (schema,), components = msgspec.json.schema_components([view], ref_template=TEMPLATE)
    for name, component in components.items():
        if _components.setdefault(name, component) != component:
            raise ValueError(f"two views are called {name!r}; rename one of them")
    return schema


def install(app: FastAPI) -> None:
    """Have the views' schemas in `app`'s document, and say of every operation how it may refuse."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(original())
        document: dict[str, Any] = original()
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _complete(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_components)
    components["securitySchemes"] = {"key": BEARER}
    # Without keys, the address is the only lock.
    document["security"] = [{"key": []}, {}]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _answer(operation["responses"], method.upper(), path)
            _ask(operation, schemas)


def _answer(responses: dict[str, Any], method: str, path: str) -> None:
    responses.pop(WILDCARD, None)
    responses |= {str(status): _problem(status, path) for status in statuses.of(method, path)}
    # FastAPI assumes a 200 where an operation names no success.
    for status in [status for status, answer in responses.items() if answer == {"description": ASSUMED}]:
        del responses[status]


def _problem(status: int, path: str) -> dict[str, Any]:
    problem = problem_of(statuses.EXAMPLES[status], path)
    content = {MEDIA_TYPE: {"schema": _schema(Problem), "example": msgspec.to_builtins(problem)}}
    return {"description": f"{problem.title}: a problem that names the fix.", "content": content}


def _ask(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Examples of path parameters and bodies, where they are looked for."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            parameter["example"] = EXAMPLES[parameter["name"]]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if "example" not in media:
            media |= _example(media["schema"], schemas)


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Of a body: the one that its model carries, if it does."""
    choices = [schema, *schema.get("anyOf", ())]
    models = [schemas[each["$ref"].rpartition("/")[2]] for each in choices if "$ref" in each]
    return next(({"example": model["example"]} for model in models if "example" in model), {})
