"""Serves `/v1/comparison`: compares jobs, and lists the samples on which two of them differ."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.comparison import (
    Comparison,
    SideBySide,
    compare_jobs,
    load_side_by_side,
    parse_measure,
)
from shared.fields import WHOLE
from shared.rag.answer_metrics import METRICS
from shared.shapes import ACCURACY, EXACT, SCORE, Scope
from shared.storage import database
from shared.storage.samples import ChangedSamples, Only, list_changed_samples

router = APIRouter(prefix="/v1/comparison", tags=["jobs"])
MOST = 30
Jobs = Annotated[
    list[str], Query(min_length=1, max_length=MOST, description="A job to compare; repeat it for each job.")
]
Baseline = Annotated[
    str | None, Query(description="The job that all others are compared with; without it every pair is compared.")
]
_SHIPPED = (ACCURACY, EXACT, SCORE, *(score for metric in METRICS.values() for score in metric.scores))
"""Measures by name, without those of plug-ins, which are accepted as well."""
MeasureName = Annotated[
    str,
    Query(
        alias="measure",
        description="Measure: `accuracy`, `exact`, `score`, `answer@K` (docs/how-to/graders.md), or a score of a"
        " metric, such as `faithfulness` (docs/how-to/metrics.md).",
        json_schema_extra={"pattern": f"^({'|'.join(_SHIPPED)}|answer@([1-9][0-9]{{0,2}}|1000))$"},
    ),
]
"""The measure to compare by. `parse_measure` refuses others with a message that a person can read."""


class JobPairQuery(BaseModel):
    """The two jobs of a pairwise comparison."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    left: str
    """Id or name of the left job. A sample counts as gained if this job is right and the other one is wrong."""
    right: str
    """Id or name of the right job."""


class ChangedQuery(JobPairQuery):
    """Which changed samples of the two jobs to list, and which page of them."""

    only: Only = "changed"
    """Which samples to list: all changed ones, those gained by the left job, or those lost by it."""
    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    """Upper bound of the rows on a page."""
    cursor: str | None = None
    """The `next_cursor` of the previous page; without it, the first page."""


@route(router, "GET", "", Scope.READ, "Compare jobs", answers(Comparison), refuses=(404, 409))
async def comparison(
    job: Jobs, deps: RequestDeps, baseline: Baseline = None, measure: MeasureName = ACCURACY
) -> Response:
    """Compares two jobs or more by accuracy, or by another `measure`. Items are matched by content
    (docs/explanation/statistics.md#comparisons).

    Each job has the measure with its interval. Each pair has McNemar's exact test (for a score the paired
    randomisation test) with Holm's correction, the difference with a bootstrap interval, alone and with
    Bonferroni's correction, the effect size, and the number of items that would show the difference. `finding`
    states the result in one sentence.
    """
    return json(await compare_jobs(deps.database, job, baseline, parse_measure(measure)))


@route(
    router, "GET", "/samples", Scope.READ, "List samples that changed",
    answers(ChangedSamples), refuses=(404, 409),
)  # fmt: skip
async def samples(query: Annotated[ChangedQuery, Query()], deps: RequestDeps) -> Response:
    """Lists the samples that only one of two jobs answered correctly, in the order of the left job's dataset. A
    sample is `gained` if only `left` is right, and `lost` if only `right` is right. Samples are matched by
    question, gold answer and repeat.
    """
    return json(await list_changed_samples(deps.database, **query.model_dump()))


@route(router, "GET", "/samples/{index}", Scope.READ, "Compare two answers", answers(SideBySide), refuses=(404, 409))
async def sample(
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    left: Annotated[str, Query(description="Id or name of the left job.")],
    right: Annotated[str, Query(description="Id or name of the right job.")],
    deps: RequestDeps,
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
) -> Response:
    """Returns sample `index` of the left job and the right job's sample of the same question, each with its provenance,
    and the differences between their prompts.
    """
    return json(await load_side_by_side(deps.database, left, right, index, repeat))
