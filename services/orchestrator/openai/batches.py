"""Serves `/openai/v1/batches`: requests in a file, which ordinary jobs answer within a day."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mathrag.errors import Invalid, NotFound
from services.orchestrator.access.identity import RequestCaller, declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import RequestDeps
from services.orchestrator.openai.batch_work import Endpoint
from services.orchestrator.openai.files import BATCH, FILE, ExpiresAfter, format_id, parse_id, to_page
from shared.runtime.lifecycle import cancel_all
from shared.shapes import Scope
from shared.storage import batches, files

router = APIRouter(prefix="/batches")
WINDOW = "24h"
Key = Annotated[str, StringConstraints(max_length=64)]
Value = Annotated[str, StringConstraints(max_length=512)]


class BatchRequest(BaseModel):
    """A batch to create."""

    model_config = ConfigDict(extra="forbid")
    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Annotated[dict[Key, Value], Field(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None


@router.post("")
async def create(request: BatchRequest, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Creates a batch; its lines are checked next."""
    input_file = parse_id(FILE, request.input_file_id)
    try:
        purpose = (await files.get(deps.database, input_file)).purpose
    except NotFound as error:
        raise Invalid("`input_file_id`: unknown file", hint="upload it with POST /openai/v1/files") from error
    if purpose != "batch":
        raise Invalid(f"`input_file_id`: the file's purpose is {purpose!r}", hint="upload one with purpose=batch")
    kept = request.output_expires_after
    new_batch = batches.NewBatch(
        input_file=input_file,
        endpoint=request.endpoint,
        metadata=request.metadata,
        output_s=kept.seconds if kept else None,
        submitted_by=caller.name,
    )
    batch = await batches.create(deps.database, new_batch)
    deps.wake()
    return json(_to_json(batch))


@router.get("")
async def list_batches(
    deps: RequestDeps, limit: Annotated[int, Query(ge=1, le=100)] = 20, after: str | None = None
) -> Response:
    """Lists the batches, newest first."""
    place = None if after is None else parse_id(BATCH, after)
    found = await batches.list_batches(deps.database, limit + 1, place)
    return json(to_page([_to_json(batch) for batch in found], limit))


@router.get("/{batch}")
async def get(batch: str, deps: RequestDeps) -> Response:
    """Returns a batch with its progress."""
    return json(_to_json(await batches.get(deps.database, parse_id(BATCH, batch))))


@router.post("/{batch}/cancel")
async def cancel(batch: str, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Cancels a batch: no further line is answered, and finished answers are kept in its files."""
    public_id = parse_id(BATCH, batch)
    caller.check_owns([(await batches.get(deps.database, public_id)).submitted_by], "the batch")
    found = await batches.cancel(deps.database, public_id)
    await cancel_all(deps.database, await batches.list_live_jobs(deps.database, found.id))
    deps.wake()
    return json(_to_json(found))


def _to_json(batch: batches.StoredBatch) -> dict[str, Any]:
    usage = None  # until the batch has ended
    if batch.prompt_tokens is not None and batch.completion_tokens is not None:
        usage = {
            "input_tokens": batch.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": batch.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": batch.prompt_tokens + batch.completion_tokens,
        }
    ends = {
        f"{state}_at": _to_seconds(batch.ended_at) if batch.state == state else None
        for state in ("completed", "failed", "expired", "cancelled")
    }
    return {
        "id": format_id(BATCH, batch.public_id),
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": format_id(FILE, batch.input_file),
        "completion_window": WINDOW,
        "status": batch.state,
        "output_file_id": format_id(FILE, batch.output_file),
        "error_file_id": format_id(FILE, batch.error_file),
        "created_at": _to_seconds(batch.created_at),
        "in_progress_at": _to_seconds(batch.in_progress_at),
        "expires_at": _to_seconds(batch.expires_at),
        "finalizing_at": _to_seconds(batch.finalizing_at),
        "cancelling_at": _to_seconds(batch.cancelling_at),
        **ends,
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": usage,
        "metadata": batch.metadata,
    }


def _to_seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


declare_scope(create, Scope.SUBMIT)
declare_scope(cancel, Scope.SUBMIT)
declare_scope(list_batches, Scope.READ)
declare_scope(get, Scope.READ)
