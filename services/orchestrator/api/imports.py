"""Serves `POST /v1/jobs/import`: turns another system's answers into a job that grades them."""

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.orchestrator.access.identity import RequestCaller
from services.orchestrator.api.etags import respond_with_tag
from services.orchestrator.api.flaws import list_ungraded_warnings
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.api.uploads import BODY, Uploaded, read_batches
from services.orchestrator.api.views import EXAMPLE, JobView, make_view
from services.orchestrator.deps import RequestDeps
from shared.ingest.answers import ImportedAnswer, Layout, make_mapping
from shared.ingest.lines import LISTED, Reader
from shared.pipelines.imported import IMPORTED
from shared.plurals import format_count
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Submission, Submitted, load_items, submit_imported
from shared.shapes import Scope
from shared.storage import configurations, jobs
from shared.storage.database import check_name

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@route(
    router, "POST", "/import", Scope.SUBMIT, "Import answers", answers(JobView, EXAMPLE, status=202),
    refuses=(404, 409, 429), status_code=202, openapi_extra=BODY,
)  # fmt: skip
async def create(
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["theirs"], description="Name of the job.")],
    dataset: Annotated[str, Query(examples=["math-500"], description="Dataset whose items were answered.")],
    upload: Uploaded,
    caller: RequestCaller,
    column: Annotated[
        list[str] | None,
        Query(
            description="Mapping of a field to a column, such as `answer=prediction`; see docs/how-to/imports.md.",
            max_length=20,
        ),
    ] = None,
    first_repeat: Annotated[int, Query(ge=0, le=1000, description="The number of an item's first repeat.")] = 0,
    grader: Annotated[str | None, Query(description="Grader of the answers; by default the dataset's.")] = None,
    layout: Annotated[Layout | None, Query(description="Program whose log the body is, in place of `format`.")] = None,
) -> Response:
    """Imports the answers of another system, as JSON lines, CSV or the log of a program, as a job of the pipeline
    `imported`. Its samples are graded like those of any other job (docs/how-to/imports.md). 202 means that all answers
    are stored; grading goes on.

    Items are identified by `id`, the exact `question` or `index`; the answer is in `answer` or `text`. An empty answer
    is wrong. An item without a line, or whose line says that the other system failed (`error`), gets no sample, and
    `warnings` says which. A line that cannot be used rejects the whole upload; with `on_error=skip` such lines are left
    out and named in `warnings`.
    """
    columns = make_mapping(column or (), first_repeat)
    holding = await configurations.load_newest(deps.database)
    params = parse_params({"grading": {"grader": grader}} if grader else {}, holding.params)
    submission = Submission(
        name=check_name(name),
        dataset=dataset,
        pipeline=IMPORTED,
        params=params,
        configuration=holding.version,
        submitted_by=caller.name,
    )
    items = await load_items(deps.database, dataset)
    async with upload.read_answers(items, columns, layout) as reader, aclosing(read_batches(reader)) as records:
        submitted = await submit_imported(deps.database, deps.settings, submission, items, records)
    deps.wake()
    deps.job_views.forget()
    found = await jobs.get(deps.database, str(submitted.job))
    headers = {"Location": f"/v1/jobs/{submitted.job}"}
    warnings = await list_ungraded_warnings(deps.database, job=submitted.job)
    warnings += _list_warnings(submitted, reader)
    return respond_with_tag(make_view(found, warnings), version=found.version, status=202, headers=headers)


def _list_warnings(submitted: Submitted, reader: Reader[ImportedAnswer]) -> list[str]:
    warnings = []
    if submitted.missing:
        items = format_count(submitted.missing, "item of the dataset has", "items of the dataset have")
        warnings.append(f"{items} no answer and will not be part of the job")
    if submitted.empty:
        places = "; ".join(f"upload, line {line}" for line in submitted.empty[:LISTED])
        answers = format_count(len(submitted.empty), "answer is empty and counts", "answers are empty and count")
        warnings.append(f"{answers} as wrong: {places}")
    if by_order := submitted.matched.get("order"):
        answers = format_count(by_order, "answer was", "answers were")
        warnings.append(
            f"{answers} matched by order, because neither id nor question is in the dataset; compare some of them with "
            "their items"
        )
    if reader.skipped:
        lines = format_count(reader.skipped, "line without an answer was", "lines without an answer were")
        warnings.append(f"{lines} left out, because the other system failed")
    if reader.rejected:
        lines = format_count(reader.rejected, "unusable line was", "unusable lines were")
        warnings.append(f"{lines} left out")
    return [*warnings, *map(str, (*reader.skips, *reader.rejections))]
