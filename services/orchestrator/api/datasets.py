"""`/v1/datasets`: upload questions."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.resources import Held, json
from services.orchestrator.api.uploads import JSONL, Reader, spooled
from shared.storage import datasets, pages

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

EXAMPLE: dict[str, Any] = {
    "id": 1, "name": "math-500", "hash": "41be…", "items": 500, "created_at": "2026-11-21T08:00:00Z",
}  # fmt: skip


class DatasetUpload(datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and what was left out of it."""

    skipped: int
    """Lines without a question, where `skip_empty` was asked for."""


@router.post(
    "", status_code=201, summary="Upload a dataset", openapi_extra=JSONL,
    responses=answers(DatasetUpload, {**EXAMPLE, "skipped": 0}, status=201),
)  # fmt: skip
async def create(
    request: Request,
    held: Held,
    name: Annotated[str, Query(examples=["math-500"])],
    skip_empty: Annotated[bool, Query(description="Leave out lines without a question, and count them.")] = False,  # noqa: FBT002
) -> Response:
    """One JSON object per line: `question` (or `problem`), and `answer`, `id`, `subject`, `level`, `gold_documents`.

    201, or 200 where the same items were there under this name. A line that cannot be used rejects the upload;
    nothing of it is stored.
    """
    async with spooled(request) as file:
        reader = Reader(file, skip_empty=skip_empty)
        created = await datasets.create(held.database, name, reader.dataset())
    upload = DatasetUpload(skipped=reader.skipped, **msgspec.structs.asdict(created.dataset))
    return json(upload, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


@router.get(
    "",
    summary="List datasets",
    responses=answers(pages.Page[datasets.Dataset], {"data": [EXAMPLE], "next_cursor": None}),
)
async def listed(held: Held, limit: int = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await datasets.listed(held.database, pages.checked_limit(limit), cursor))


@router.get("/{name}", summary="Get a dataset", responses=answers(datasets.Dataset, EXAMPLE))
async def get(held: Held, name: str) -> Response:
    """By name."""
    return json(await datasets.get(held.database, name))
