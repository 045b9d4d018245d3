"""Receives a multipart upload of OpenAI's clients: counts it as it arrives, spools it to disk, and checks each
field.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Literal

import msgspec
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.types import Message

from services.orchestrator.access.values import check_text
from services.orchestrator.api.problems import make_openai_refusal
from services.orchestrator.api.uploads import refuse_full_disk
from shared.errors import BadRequest, Invalid, TooLarge
from shared.storage.files import KEPT_S

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
    """Yield the upload, which is on disk until the context ends.

    Raises:
        BadRequest: the client has disconnected.
        Invalid: a field is missing, unknown or wrong; the message names it.
        OutOfSpace: there is no space for it.
        TooLarge: the file has more than `most` bytes; raised as soon as that is known.
    """
    if int(request.headers.get("content-length", "0")) > most + FORM_BYTES:
        raise _make_too_large(most)
    counted = Request(request.scope, _Counting(request, most).receive)
    try:
        with refuse_full_disk():
            async with counted.form(max_files=1, max_fields=10) as form:
                yield _upload(form, most)
    except ClientDisconnect as error:
        raise BadRequest("the upload broke off before its end", hint="send it again") from error


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
        f"`file`: is too large: at most {most} bytes are allowed", hint="split it, and create a batch for each part"
    )


def _upload(form: FormData, most: int) -> ReceivedFile:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Invalid("`file`: is missing", hint="send it as a part of a form (multipart/form-data)")
    if not file.size:
        raise Invalid("`file`: is empty", hint="send one request a line")
    if file.size > most:
        raise _make_too_large(most)
    name = file.filename or "file"
    check_text(("file", "filename"), name)
    return ReceivedFile(file=file, name=name[:LONGEST_NAME], fields=_read_fields(form))


def _read_fields(form: FormData) -> FileFields:
    """Return the fields; OpenAI's clients send `expires_after` as `expires_after[anchor]` and
    `expires_after[seconds]`.
    """
    values: dict[str, object] = {}
    for name, value in form.multi_items():
        if name == "file":
            continue
        outer, _, inner = name.removesuffix("]").partition("[")
        if inner and isinstance(group := values.setdefault(outer, {}), dict):
            group[inner] = value
        else:
            values[name] = value
    return _parse_fields(values)


def _parse_fields(values: Mapping[str, object]) -> FileFields:
    try:
        return FileFields.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise make_openai_refusal({**first, "loc": ("body", *first["loc"])}) from error
