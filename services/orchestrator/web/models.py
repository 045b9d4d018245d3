"""Serves `/models`: the models, where they are, what memory they take, and how fast they are."""

from fastapi import APIRouter, Response

from services.orchestrator.api.models import list_views, load_details
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page

router = APIRouter()


@page(router, "/models")
async def list_models(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists every model that a job may name."""
    return visit.show("models/list.html", title="Models", json="/v1/models", models=as_json(await list_views(deps)))


@page(router, "/models/{name}")
async def show_model(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows one model with its measurements."""
    found = as_json(await load_details(deps, name))
    return visit.show("models/one.html", title=name, json=f"/v1/models/{name}", model=found)
