"""`/models`: what answers, where it is, what it takes and how fast it is."""

from fastapi import APIRouter, Response

from services.orchestrator.api.models import details, views
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page

router = APIRouter()


@page(router, "/models")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Every model that a job may name."""
    return visit.show("models/list.html", title="Models", json="/v1/models", models=as_json(await views(deps)))


@page(router, "/models/{name}")
async def one(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """One model, with what was measured of it."""
    found = as_json(await details(deps, name))
    return visit.show("models/one.html", title=name, json=f"/v1/models/{name}", model=found)
