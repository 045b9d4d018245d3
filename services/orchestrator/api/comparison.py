"""`/v1/comparison`: jobs side by side, which of them differ, and on which samples."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.samples import PROVENANCE
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.compared import Comparison
from services.orchestrator.reports.comparison import compare_jobs
from services.orchestrator.reports.comparison_example import EXAMPLE
from services.orchestrator.reports.measuring import chosen
from services.orchestrator.reports.side_by_side import SideBySide, side_by_side
from shared.contracts.api_keys import Scope
from shared.contracts.fields import WHOLE
from shared.contracts.measures import ACCURACY, PATTERN
from shared.storage import changed_samples, pages

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
_CHANGED: dict[str, Any] = {
    "index": 3, "right_index": 3, "repeat": 0, "custom_id": "test/algebra/12", "question": "What is $2+3$?",
    "gold": "5", "subject": "Algebra", "level": "Level 1",
    "left": {"answer": "5", "correct": True, "truncated": False},
    "right": {"answer": "6", "correct": False, "truncated": False},
}  # fmt: skip
CHANGED = {
    "left_name": "gate",
    "right_name": "dense",
    "gained": 21,
    "lost": 17,
    "data": [_CHANGED],
    "next_cursor": None,
}
_LINES = [
    {"side": "gap", "text": "2 equal lines"}, {"side": "left", "text": "Problem: What is $2+2$?"},
    {"side": "right", "text": "Problem: What is $1+1$?"},
]  # fmt: skip
TWO = {
    "left_name": "gate",
    "right_name": "dense",
    "left": PROVENANCE,
    "right": PROVENANCE,
    "prompts": {"lines": _LINES, "cut": False},
}


class Both(BaseModel):
    """Two jobs."""

    model_config = ConfigDict(extra="forbid")

    left: str
    """Gains are its own."""
    right: str


class ChangedQuery(Both):
    """Which of their samples a list holds, and which page of it."""

    only: changed_samples.Only = "changed"
    limit: Annotated[int, Field(ge=1, le=pages.LARGEST), WHOLE] = pages.DEFAULT
    cursor: str | None = None


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


@route(
    router, "GET", "/samples", Scope.READ, "List samples that changed",
    answers(changed_samples.ChangedSamples, CHANGED), refuses=(404, 409),
)  # fmt: skip
async def samples(query: Annotated[ChangedQuery, Query()], deps: RequestDeps) -> Response:
    """Samples that one of two jobs has right and the other one wrong, in the order of the left one's dataset: `gained`
    where `left` has it right, `lost` where `right` has. Matched by question, gold answer and repeat.
    """
    return json(await changed_samples.listed(deps.database, **query.model_dump()))


@route(
    router, "GET", "/samples/{index}", Scope.READ, "One question, two answers", answers(SideBySide, TWO),
    refuses=(404, 409),
)  # fmt: skip
async def sample(
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    left: str,
    right: str,
    deps: RequestDeps,
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
) -> Response:
    """Sample `index` of the left job and the right job's one of the same question, each with its provenance, and where
    their prompts differ.
    """
    return json(await side_by_side(deps.database, left, right, index, repeat))
