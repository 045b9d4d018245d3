"""`/v1/comparison`: jobs side by side, and which of them differ."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.compared import Comparison
from services.orchestrator.reports.comparison import compare_jobs
from services.orchestrator.reports.comparison_example import EXAMPLE
from services.orchestrator.reports.measuring import chosen
from shared.contracts.api_keys import Scope
from shared.contracts.measures import ACCURACY, PATTERN

router = APIRouter(prefix="/v1/comparison", tags=["jobs"])
MOST = 30
Jobs = Annotated[list[str], Query(min_length=1, max_length=MOST, description="Once for each job.")]
Baseline = Annotated[str | None, Query(description="The job that all others are compared with; none: each with each.")]
MeasureName = Annotated[
    str,
    Query(
        alias="measure",
        description="accuracy, exact, score, or answer@K (docs/graders.md).",
        json_schema_extra={"pattern": f"^({PATTERN})$"},
    ),
]
"""What is compared; `chosen` refuses others in words."""


@route(router, "GET", "", Scope.READ, "Compare jobs", answers(Comparison, EXAMPLE), refuses=(404, 409))
async def comparison(
    job: Jobs, deps: RequestDeps, baseline: Baseline = None, measure: MeasureName = ACCURACY
) -> Response:
    """Accuracy, or another `measure`, of each with its intervals; of each pair McNemar's exact test (of a score the
    paired randomisation test) with Holm's correction, the difference with a bootstrap interval, alone and with
    Bonferroni's correction, the effect, and how many items would tell the two apart; the finding in one sentence. Items
    are matched by content (docs/statistics.md#comparisons). `job` is given once for each job.
    """
    return json(await compare_jobs(deps.database, job, baseline, chosen(measure)))
