"""Serves `/v1/datasets`: uploads and lists questions."""

from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.api.uploads import BODY, Rejected, Uploaded, read_batches, report_rejections
from services.orchestrator.deps import RequestDeps
from shared.ingest.datasets import ItemReader
from shared.runtime.parameters import check_grader
from shared.shapes import Scope
from shared.storage import database
from shared.storage import datasets as stored_datasets

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
    "rejected_lines": [{"line": 7, "message": "has no question; write it into `question` (or `problem`)"}],
    "warnings": ["`subjekt` was not read: did you mean `subject`?"],
}  # fmt: skip


class DatasetUpload(stored_datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and which lines of the upload were left out of it."""

    skipped: int
    """Lines without a question that were left out; counted only with `skip_empty`."""
    rejected: int
    """Lines that could not be used; counted only with `on_error=skip`."""
    rejected_lines: list[Rejected]
    """The first rejected lines, with the reason."""
    alternatives: int
    """Items with several different expected answers; any of them counts as correct."""
    warnings: tuple[str, ...] = ()
    """What the items lack: expected answers and relevant documents; and unread fields that look like misspelt ones."""


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
        str | None,
        Query(description="Grader of the answers, unless a job names another; by default the mathematical one."),
    ] = None,
) -> Response:
    """Uploads questions as JSON lines, CSV or Parquet, with the fields `question` (or `problem`) and optionally
    `answer`, `id`, `subject`, `level` and `gold_documents` (docs/how-to/api.md#uploads).

    If `answer` is a list, any of its answers counts as correct. `grader=choice` also needs `choices`, `grader=rubric`
    also needs `rubric`.

    `warnings` says if no item has an expected answer or relevant documents, and names fields that look misspelt.

    Answers 201, or 200 if the dataset exists with the same items. A line that cannot be used rejects the whole upload,
    unless `on_error=skip` leaves such lines out.
    """
    if grader is not None:
        check_grader(grader, "grader")
    items = ItemReader(grader)
    async with upload.read_items(items) as reader, aclosing(read_batches(reader)) as records:
        created = await stored_datasets.create(deps.database, name, records, grader)
    answer = DatasetUpload(
        **msgspec.structs.asdict(created.dataset), alternatives=created.alternatives, **report_rejections(reader),
        warnings=tuple(items.list_warnings()),
    )  # fmt: skip
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


@route(
    router, "GET", "", Scope.READ, "List datasets",
    answers(database.Page[stored_datasets.Dataset], {"data": [EXAMPLE], "next_cursor": None}),
    name="listed",
)  # fmt: skip
async def list_datasets(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the datasets, newest first."""
    return json(await stored_datasets.list_datasets(deps.database, limit, cursor))


@route(
    router, "GET", "/{name}", Scope.READ, "Get a dataset", answers(stored_datasets.DatasetDetails, DETAILS),
    refuses=(404,),
)  # fmt: skip
async def get(deps: RequestDeps, name: str) -> Response:
    """Returns a dataset with counts of what its items have, by subject and level."""
    return json(await stored_datasets.load_details(deps.database, name))


@route(
    router, "GET", "/{name}/items", Scope.READ, "List a dataset's items",
    answers(database.Page[stored_datasets.ItemPreview], ITEMS), refuses=(404,),
)  # fmt: skip
async def items(deps: RequestDeps, name: str, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the questions with their expected answers in the dataset's order, page by page."""
    return json(await stored_datasets.list_items(deps.database, name, limit, cursor))
