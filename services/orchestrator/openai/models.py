"""Serves `/openai/v1/models`."""

from typing import Any

from fastapi import APIRouter, Response

from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import RequestDeps
from services.orchestrator.openai.names import NamedModel, find_model, list_all_models
from shared.shapes import Scope

router = APIRouter(prefix="/models")
OWNER = "mathrag-gate"


@router.get("")
async def list_models(deps: RequestDeps) -> Response:
    """Lists every name that a request may give as its `model`."""
    return json(
        {"object": "list", "data": [_make_view(each) for each in await list_all_models(deps.settings, deps.database)]}
    )


@router.get("/{name:path}")
async def get_model(name: str, deps: RequestDeps) -> Response:
    """Returns one model."""
    return json(_make_view(await find_model(deps, name)))


def _make_view(model: NamedModel) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": OWNER}


declare_scope(list_models, Scope.READ)
declare_scope(get_model, Scope.READ)
