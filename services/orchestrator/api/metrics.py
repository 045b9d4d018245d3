"""`/metrics`: what operators watch, for Prometheus."""

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from services.orchestrator.deps import Held
from services.orchestrator.metrics.metrics import Metrics

router = APIRouter(tags=["health"])

RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Prometheus' text format.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": 'mathrag_workers{lane="judge"} 1.0\n'}},
    }
}


@router.get("/metrics", summary="Metrics", response_class=Response, responses=RESPONSE)
async def metrics(request: Request, held: Held) -> Response:
    """What operators watch, for Prometheus; the same for five seconds. Not there where the operator switched it off."""
    found: Metrics = request.app.state.metrics
    return Response(await found.text(held), media_type=CONTENT_TYPE_LATEST)
