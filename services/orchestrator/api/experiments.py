"""`/v1/experiments`: the name of a grid of jobs that are compared, kept for it."""

from fastapi import APIRouter, Response

from services.orchestrator.api.openapi import REFUSES
from shared.errors import NotImplementedYet

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])
TODAY = (
    "submit one job for each combination, with the same `metadata` on all of them,"
    " and compare their GET /v1/jobs/{job}/report"
)


@router.get("", summary="List experiments (reserved)", responses=REFUSES)
async def listed() -> Response:
    """Reserved: answers 501, and what to do today."""
    raise _reserved()


@router.post("", summary="Create an experiment (reserved)", responses=REFUSES)
async def create() -> Response:
    """Reserved: answers 501, and what to do today; nothing is read of the request."""
    raise _reserved()


def _reserved() -> NotImplementedYet:
    return NotImplementedYet("experiments are reserved for a later version", hint=TODAY)
