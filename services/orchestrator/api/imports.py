"""`/v1/jobs/import`: answers that another system gave, as a job that grades them."""

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.api.etags import tagged
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.api.uploads import BODY, Uploaded, batches
from services.orchestrator.api.views import EXAMPLE, JobView, view
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.grading import Grading
from shared.ingest.given_answers import mapping
from shared.pipelines.imported import IMPORTED
from shared.runtime.drafting import Submission
from shared.runtime.importing import Submitted, items_of, submit_given
from shared.runtime.parameters import params_of
from shared.storage import configurations, jobs
from shared.storage.names import checked

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@route(
    router, "POST", "/import", Scope.SUBMIT, "Import answers", answers(JobView, EXAMPLE, status=202),
    refuses=(404, 409, 429), status_code=202, openapi_extra=BODY,
)  # fmt: skip
async def create(
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["theirs"], description="Of the job.")],
    dataset: Annotated[str, Query(examples=["math-500"], description="Whose items were answered.")],
    upload: Uploaded,
    column: Annotated[
        list[str] | None,
        Query(description="Which column says what, such as `answer=prediction`; see docs/imports.md.", max_length=20),
    ] = None,
    first_repeat: Annotated[int, Query(ge=0, le=1000, description="The number of an item's first repeat.")] = 0,
    grader: Annotated[Grading | None, Query(description="By default the dataset's.")] = None,
) -> Response:
    """What another system answered, as JSON lines or CSV: a job of the pipeline `imported`, whose samples are
    graded like those of any other (docs/imports.md). 202: all answers are stored; grading goes on.

    Items are named by `id`, `index` or the exact `question`; what was answered stands in `answer` or `text`. An item
    without an answer is no sample of the job; `warnings` says how many there are. A line that cannot be used rejects
    the upload, and nothing of it is stored; with `on_error=skip` the others are.
    """
    columns = mapping(column or (), first_repeat)
    holding = await configurations.holding(deps.database)
    params = params_of({"grading": {"grader": grader}} if grader else {}, holding.params)
    submission = Submission(
        name=checked(name), dataset=dataset, pipeline=IMPORTED, params=params, configuration=holding.version
    )
    items = await items_of(deps.database, dataset)
    async with upload.given(items, columns) as reader, aclosing(batches(reader)) as records:
        submitted = await submit_given(deps.database, deps.settings, submission, items, records)
    deps.wake()
    deps.job_views.forget()
    found = await jobs.get(deps.database, str(submitted.job))
    headers = {"Location": f"/v1/jobs/{submitted.job}"}
    return tagged(
        view(found, _warnings(submitted, reader.rejected)), version=found.version, status=202, headers=headers
    )


def _warnings(submitted: Submitted, rejected: int) -> list[str]:
    said = []
    if submitted.missing:
        said.append(f"{submitted.missing} items of the dataset have no answer; the job is over the others")
    if rejected:
        said.append(f"{rejected} lines could not be used and were left out")
    return said
