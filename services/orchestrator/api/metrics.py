"""Serves `/metrics`: the metrics for Prometheus."""

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.metrics.metrics import Metrics
from shared.shapes import Scope

router = APIRouter(tags=["health"])

RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics in the text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": 'mathrag_workers{lane="judge"} 1.0\n'}},
    }
}


@route(router, "GET", "/metrics", Scope.READ, "Metrics", RESPONSE, response_class=Response)
async def metrics(request: Request, deps: RequestDeps) -> Response:
    """Returns the metrics for Prometheus (docs/how-to/telemetry.md#metrics); an answer is cached for five seconds.
    Answers 404 if the operator has switched metrics off.
    """
    found: Metrics = request.app.state.metrics
    return Response(await found.text(deps), media_type=CONTENT_TYPE_LATEST)
