"""`/v1/comparison`: jobs side by side, and which of them differ."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.comparison import EXAMPLE, Comparison, compare_jobs
from shared.contracts.api_keys import Scope

router = APIRouter(prefix="/v1/comparison", tags=["jobs"])
MOST = 30
Jobs = Annotated[list[str], Query(min_length=1, max_length=MOST, description="Once for each job.")]
Baseline = Annotated[str | None, Query(description="The job that all others are compared with; none: each with each.")]


@route(router, "GET", "", Scope.READ, "Compare jobs", answers(Comparison, EXAMPLE), refuses=(404, 409))
async def comparison(job: Jobs, deps: RequestDeps, baseline: Baseline = None) -> Response:
    """Accuracy of each with its intervals; of each pair McNemar's exact test with Holm's correction, the difference
    with a bootstrap interval, Cohen's h, and how many items would tell the two apart. Items are matched by content
    (docs/statistics.md#comparisons). `job` is given once for each job.
    """
    return json(await compare_jobs(deps.database, job, baseline))
