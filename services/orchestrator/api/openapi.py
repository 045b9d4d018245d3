"""OpenAPI of what msgspec writes: schemas from the views themselves, one example per operation."""

from typing import Any

import msgspec
from fastapi import FastAPI

from services.orchestrator.api.problems import MEDIA_TYPE, Problem

TEMPLATE = "#/components/schemas/{name}"
_components: dict[str, Any] = {}


def answers(view: Any, example: Any, *, status: int = 200, media: str = "application/json") -> dict[int | str, Any]:
    """The `responses` of an operation that answers with `view`, or with a problem."""
    problem = {"schema": _schema(Problem), "example": PROBLEM}
    return {
        status: {"description": "As asked.", "content": {media: {"schema": _schema(view), "example": example}}},
        "4XX": {"description": "A problem that names the fix.", "content": {MEDIA_TYPE: problem}},
    }


def _schema(view: Any) -> Any:
    (schema,), components = msgspec.json.schema_components([view], ref_template=TEMPLATE)
    _components.update(components)
    return schema


def install(app: FastAPI) -> None:
    """Have the views' schemas in `app`'s document."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        document = original()
        document.setdefault("components", {}).setdefault("schemas", {}).update(_components)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


PROBLEM = {
    "type": "urn:mathrag:invalid",
    "title": "Invalid",
    "status": 422,
    "detail": "`params.gate.tua`: there is no such field",
    "instance": "/v1/jobs",
    "hint": "fields of `params.gate`: items, max_documents, min_pairs, on_unusable, tau, top",
    "field": "params.gate.tua",
}
