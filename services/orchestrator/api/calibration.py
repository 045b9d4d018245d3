"""`/v1/jobs/{job}/calibration`: thresholds for `crag`, from labelled or judged lists."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.runtime.calibrating import EXAMPLE, TRUST, Calibrated, calibrated

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Trust = Annotated[
    float, Query(ge=0.5, lt=1, description="Share of relevant lists above `upper`, of others below `lower`.")
]

JudgedBy = Annotated[
    str | None,
    Query(description="Job over the same dataset and corpus whose judge says which lists are relevant."),
]


@route(
    router, "GET", "/{job}/calibration", Scope.READ, "Calibrate CRAG's thresholds",
    answers(Calibrated, EXAMPLE), refuses=(404, 409),
)  # fmt: skip
async def calibration(job: str, deps: RequestDeps, trust: Trust = TRUST, judged_by: JudgedBy = None) -> Response:
    """Of a `crag` job whose lists are labelled, by the dataset's gold documents or by the judge of `judged_by`: `upper`
    and `lower` for its evaluator, with 95 % intervals (docs/retrieval.md#calibration).
    """
    async with deps.database.transaction() as connection:
        return json(await calibrated(connection, job, trust, judged_by))
