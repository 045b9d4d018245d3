"""Serves `GET /v1/jobs/{job}/calibration`: thresholds for `crag`, estimated from labelled or judged retrieval lists."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.runtime.pins import EXAMPLE, TRUST, Calibrated, calibrate_crag
from shared.shapes import Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Trust = Annotated[
    float,
    Query(
        ge=0.5,
        lt=1,
        description="Share of relevant lists that must score above `upper`, and of irrelevant ones below `lower`.",
    ),
]

JudgedBy = Annotated[
    str | None,
    Query(description="Job over the same dataset and corpus whose judge decides which lists are relevant."),
]


@route(
    router, "GET", "/{job}/calibration", Scope.READ, "Calibrate CRAG's thresholds",
    answers(Calibrated, EXAMPLE), refuses=(404, 409),
)  # fmt: skip
async def calibration(job: str, deps: RequestDeps, trust: Trust = TRUST, judged_by: JudgedBy = None) -> Response:
    """Returns `upper` and `lower` for the evaluator of a `crag` job, with 95 % intervals
    (docs/how-to/retrieval.md#calibration). Its lists must be labelled, either by the dataset's gold documents or by the
    judge of `judged_by`.
    """
    async with deps.database.transaction() as connection:
        return json(await calibrate_crag(connection, job, trust, judged_by))
