"""`/v1/jobs/{job}/calibration`: thresholds for `crag`, from labelled data."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.resources import Held, json
from services.orchestrator.reports.calibration import EXAMPLE, Calibrated, calibrated

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Trust = Annotated[
    float, Query(ge=0.5, lt=1, description="Share of relevant lists above `upper`, of others below `lower`.")
]


@router.get("/{job}/calibration", summary="Calibrate CRAG's thresholds", responses=answers(Calibrated, EXAMPLE))
async def calibration(job: str, held: Held, trust: Trust = 0.9) -> Response:
    """Of a `crag` job whose dataset has gold documents: `upper` and `lower` for its evaluator, with 95 % intervals."""
    return json(await calibrated(held.database, job, trust))
