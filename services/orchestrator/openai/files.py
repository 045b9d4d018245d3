"""Serves `/openai/v1/files`: the input, output and error files of batches."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import RequestDeps
from services.orchestrator.openai.identifiers import FILE, format_id, parse_id
from services.orchestrator.openai.uploads import LARGEST, receive_upload
from shared.shapes import Scope
from shared.storage import files

router = APIRouter(prefix="/files")
MOST_LISTED = 10_000
"""Upper bound of the files on a page, and its default, as OpenAI's."""


@router.post("")
async def create(request: Request, deps: RequestDeps) -> Response:
    """Stores an upload, either completely or not at all. The batch that names the file checks its lines."""
    async with receive_upload(request, min(LARGEST, deps.settings.limits.upload_bytes)) as upload:
        expires = upload.fields.expires_after
        async with deps.database.transaction() as connection:
            writer = files.Writer(connection)
            while chunk := await upload.file.read(files.CHUNK):
                await writer.write(chunk)
            file = await writer.finish(upload.name, "batch", expires.seconds if expires else files.KEPT_S)
    assert file is not None  # noqa: S101 - an empty upload was refused
    return json(_to_json(file))


@router.get("")
async def list_files(
    deps: RequestDeps,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
    after: str | None = None,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> Response:
    """Lists the files, newest first unless `order` says otherwise."""
    place = None if after is None else parse_id(FILE, after)
    found = await files.list_files(deps.database, limit + 1, place, order, purpose)
    return json(to_page([_to_json(file) for file in found], limit))


@router.get("/{file}")
async def get(file: str, deps: RequestDeps) -> Response:
    """Returns a file's metadata."""
    return json(_to_json(await files.get(deps.database, parse_id(FILE, file))))


@router.get("/{file}/content")
async def get_content(file: str, deps: RequestDeps) -> Response:
    """Returns the bytes of a file as they were stored."""
    number = parse_id(FILE, file)
    size = (await files.get(deps.database, number)).bytes
    return StreamingResponse(
        files.read(deps.database, number),
        media_type="application/octet-stream",
        headers={"Content-Length": str(size)},
    )


@router.delete("/{file}")
async def delete(file: str, deps: RequestDeps) -> Response:
    """Deletes a file permanently; a batch that has not read it yet fails."""
    await files.delete(deps.database, parse_id(FILE, file))
    return json({"id": file, "object": "file", "deleted": True})


def to_page(data: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return a page of a list; `data` has one row more than `limit` if there is a next page."""
    kept = data[:limit]
    ends = {"first_id": kept[0]["id"], "last_id": kept[-1]["id"]} if kept else {"first_id": None, "last_id": None}
    return {"object": "list", "data": kept, **ends, "has_more": len(data) > limit}


def _to_json(file: files.File) -> dict[str, Any]:
    return {
        "id": format_id(FILE, file.id),
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


declare_scope(create, Scope.SUBMIT)
declare_scope(delete, Scope.SUBMIT)
declare_scope(list_files, Scope.READ)
declare_scope(get, Scope.READ)
declare_scope(get_content, Scope.READ)
