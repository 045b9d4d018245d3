"""OpenAI's files: uploads, and the ids of files and batches."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.types import Message

from mathrag.errors import BadRequest, Invalid, TooLarge
from services.orchestrator.access.identity import declare_scope
from services.orchestrator.access.limits import check_text
from services.orchestrator.api.routes import json, make_openai_refusal
from services.orchestrator.api.uploads import refuse_full_disk
from services.orchestrator.deps import RequestDeps
from shared.shapes import Scope
from shared.storage import files
from shared.storage.files import KEPT_S

FILE = "file-"
BATCH = "batch_"
"""Ids have the form of OpenAI's: a prefix for the kind, then a UUID without its hyphens."""


def format_id(prefix: str, number: uuid.UUID | None) -> str | None:
    """Return the id that clients see; None without a number."""
    return None if number is None else f"{prefix}{number.hex}"


def parse_id(prefix: str, given: str) -> uuid.UUID:
    """Return the UUID in `given`; for anything that `format_id` did not make, an id that nothing has."""
    digits = given.removeprefix(prefix)
    if not given.startswith(prefix) or len(digits) != 32:
        return uuid.UUID(int=0)
    try:
        return uuid.UUID(hex=digits)
    except ValueError:
        return uuid.UUID(int=0)


LARGEST = 200 * 1000 * 1000
"""Upper bound of a batch's file in bytes: OpenAI's 200 MB."""
FORM_BYTES = 1 << 20
"""Bytes that the form may have around the file."""
LONGEST_NAME = 255
SHORTEST_S, LONGEST_S = 3600, KEPT_S


class ExpiresAfter(BaseModel):
    """When a file expires."""

    model_config = ConfigDict(extra="forbid")
    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=SHORTEST_S, le=LONGEST_S)]


class FileFields(BaseModel):
    """The form's fields besides the file."""

    model_config = ConfigDict(extra="forbid")
    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = None


class ReceivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that has arrived completely."""

    file: UploadFile
    name: str
    fields: FileFields


@asynccontextmanager
async def receive_upload(request: Request, most: int) -> AsyncIterator[ReceivedFile]:
    """Yield a multipart upload, which is counted as it arrives and is on disk until the context ends.

    Raises:
        BadRequest: the client has disconnected.
        Invalid: a field is missing, unknown or wrong; the message names it.
        OutOfSpace: the disk is full.
        TooLarge: the file has more than `most` bytes; raised as soon as that is known.
    """
    if int(request.headers.get("content-length", "0")) > most + FORM_BYTES:
        raise _make_too_large(most)
    counted = Request(request.scope, _Counting(request, most).receive)
    try:
        with refuse_full_disk():
            async with counted.form(max_files=1, max_fields=10) as form:
                yield _check_form(form, most)
    except ClientDisconnect as error:
        raise BadRequest("the connection closed before the whole upload had arrived", hint="send it again") from error


class _Counting:
    """Receives a request's body, and refuses one that is too long before parsing its next bytes."""

    def __init__(self, request: Request, most: int) -> None:
        self._receive = request.receive
        self._most = most
        self._received = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._most + FORM_BYTES:
            raise _make_too_large(self._most)
        return message


def _make_too_large(most: int) -> TooLarge:
    return TooLarge(
        f"`file`: is too large: at most {most} bytes are allowed",
        hint="split the file, and create a batch for each part",
    )


def _check_form(form: FormData, most: int) -> ReceivedFile:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Invalid("`file`: is missing", hint="send it as a part of a form (multipart/form-data)")
    if not file.size:
        raise Invalid("`file`: is empty", hint="send one request a line")
    if file.size > most:
        raise _make_too_large(most)
    name = file.filename or "file"
    check_text(("file", "filename"), name)
    # The fields; OpenAI's clients send `expires_after` as `expires_after[anchor]` and `expires_after[seconds]`.
    values: dict[str, object] = {}
    for field, value in form.multi_items():
        if field == "file":
            continue
        outer, _, inner = field.removesuffix("]").partition("[")
        if inner and isinstance(group := values.setdefault(outer, {}), dict):
            group[inner] = value
        else:
            values[field] = value
    try:
        fields = FileFields.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise make_openai_refusal({**first, "loc": ("body", *first["loc"])}) from error
    return ReceivedFile(file=file, name=name[:LONGEST_NAME], fields=fields)


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
    """Returns the bytes of a file unchanged."""
    number = parse_id(FILE, file)
    size = (await files.get(deps.database, number)).bytes
    content, headers = files.read(deps.database, number), {"Content-Length": str(size)}
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)


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
