"""`/v1/datasets`: upload questions."""

from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.api.uploads import BODY, Rejected, Uploaded, batches, left_out
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.grading import Grading
from shared.storage import dataset_details, datasets, pages, previews

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

EXAMPLE: dict[str, Any] = {
    "id": 1, "name": "math-500", "hash": "41be…", "items": 500, "created_at": "2026-11-21T08:00:00Z",
    "grader": None,
}  # fmt: skip
DETAILS: dict[str, Any] = {
    **EXAMPLE,
    "counts": {
        "counted": 500, "gold": 500, "gold_documents": 0,
        "subjects": [{"name": "Algebra", "items": 124}, {"name": "Geometry", "items": 41}],
        "levels": [{"name": "Level 1", "items": 43}],
    },
}  # fmt: skip
ITEMS: dict[str, Any] = {
    "data": [{"index": 0, "id": "test/algebra/12", "question": "What is $2+3$?", "gold": "5", "subject": "Algebra",
              "level": "Level 1", "gold_documents": {"algebra/17": 1}, "relation": None}],
    "next_cursor": None,
}  # fmt: skip
UPLOADED: dict[str, Any] = {
    **EXAMPLE, "skipped": 0, "rejected": 1, "alternatives": 0,
    "rejected_lines": [{"line": 7, "message": "has no question; put it into `question` (or `problem`)"}],
}  # fmt: skip


class DatasetUpload(datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and what was left out of it."""

    skipped: int
    """Lines without a question, where `skip_empty` was asked for."""
    rejected: int
    """Lines that cannot be used, where `on_error=skip` was asked for."""
    rejected_lines: list[Rejected]
    """The first of them."""
    alternatives: int
    """Items with several expected answers that differ: any of them is right."""


@route(
    router, "POST", "", Scope.SUBMIT, "Upload a dataset",
    answers(DatasetUpload, UPLOADED) | answers(DatasetUpload, UPLOADED, status=201),
    refuses=(409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def create(
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["math-500"])],
    upload: Uploaded,
    grader: Annotated[
        Grading | None,
        Query(description="How its answers are graded, unless a job says otherwise; by default as mathematics."),
    ] = None,
) -> Response:
    """JSON lines, CSV or Parquet: `question` (or `problem`), and `answer`, `id`, `subject`, `level`, `gold_documents`
    (docs/api.md#uploads).

    A list of answers: any of them is right. With `grader=choice` also `choices`, with `grader=rubric` also `rubric`.

    201, or 200 where the same items were there under this name. A line that cannot be used rejects the upload, and
    nothing of it is stored; with `on_error=skip` the others are.
    """
    async with upload.dataset(grader) as reader, aclosing(batches(reader)) as records:
        created = await datasets.create(deps.database, name, records, grader)
    answer = DatasetUpload(
        **msgspec.structs.asdict(created.dataset), alternatives=created.alternatives, **left_out(reader)
    )
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


@route(
    router, "GET", "", Scope.READ, "List datasets",
    answers(pages.Page[datasets.Dataset], {"data": [EXAMPLE], "next_cursor": None}),
)  # fmt: skip
async def listed(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await datasets.listed(deps.database, limit, cursor))


@route(
    router, "GET", "/{name}", Scope.READ, "Get a dataset", answers(dataset_details.DatasetDetails, DETAILS),
    refuses=(404,),
)  # fmt: skip
async def get(deps: RequestDeps, name: str) -> Response:
    """By name, with what its items have, by subject and level."""
    return json(await dataset_details.details(deps.database, name))


@route(
    router, "GET", "/{name}/items", Scope.READ, "List a dataset's items",
    answers(pages.Page[previews.ItemPreview], ITEMS), refuses=(404,),
)  # fmt: skip
async def items(deps: RequestDeps, name: str, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Questions with their expected answers, in the dataset's order, page by page."""
    return json(await previews.items(deps.database, name, limit, cursor))
