"""Uploads: spooled to disk as they arrive, then read row by row in a worker thread.

The database sees an upload only when all of it is here, so a slow client holds no transaction open.
"""

import asyncio
import errno
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import IO, Annotated, Any, Literal, TypeVar

import msgspec
from anyio import to_thread
from fastapi import Depends, Query, Request
from starlette.requests import ClientDisconnect

from services.orchestrator.deps import RequestDeps
from shared.contracts.datasets import DatasetItem
from shared.contracts.documents import CorpusRecord
from shared.errors import BadRequest, Invalid, OutOfSpace, TooLarge
from shared.ingest import corpora, datasets, rows, tables
from shared.ingest.given_answers import Answered, AnswerReader, ColumnMapping, Items
from shared.ingest.lines import Fields, Row
from shared.ingest.reader import OnError, Reader
from shared.ingest.rows import Format
from shared.limits import Limits

BATCH = 1000
BATCH_BYTES = 4 << 20
"""Lines of an upload that are stored together; one of JSON may take twenty times its length in memory."""
SOURCE = "upload"
"""What errors call the body; a client knows the file."""
MEDIA_TYPES = {
    "application/x-ndjson": Format.JSONL,
    "application/jsonl": Format.JSONL,
    "text/csv": Format.CSV,
    "text/tab-separated-values": Format.CSV,
    "application/vnd.apache.parquet": Format.PARQUET,
}
LINE = '{"id": "algebra/17", "problem": "What is $2+2$?", "solution": "Therefore $\\boxed{4}$."}\n'
TABLE = "id,question,text,answer\r\nalgebra/17,What is $2+2$?,Therefore $4$.,4\r\n"
"""Either may be uploaded as a corpus and as a dataset."""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": LINE},
            "text/csv": {"schema": {"type": "string"}, "example": TABLE},
            "application/vnd.apache.parquet": {
                "schema": {"type": "string", "format": "binary"},
                "example": "PAR1…PAR1",
            },
        },
    }
}
"""For OpenAPI: FastAPI cannot see that the body is read as a stream."""

Record = TypeVar("Record", CorpusRecord, DatasetItem, Answered)


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not stored."""

    line: int
    """From 1; in Parquet the row."""
    message: str


class Upload:
    """How a request wants its body read."""

    def __init__(
        self,
        request: Request,
        deps: RequestDeps,
        format: Annotated[Format, Query(description="`auto`: by Content-Type, else by its first bytes.")] = Format.AUTO,  # noqa: A002
        delimiter: Annotated[
            Literal["comma", "semicolon", "tab"] | None, Query(description="Of CSV; by default what splits the header.")
        ] = None,
        skip_empty: Annotated[bool, Query(description="Leave out lines without text, and count them.")] = False,  # noqa: FBT002
        on_error: Annotated[
            OnError, Query(description="`reject`: one bad line, and nothing is stored; `skip`: the good ones are.")
        ] = OnError.REJECT,
    ) -> None:
        self._request = request
        self._limits = deps.settings.limits
        self._format = format if format is not Format.AUTO else _declared(request)
        self._delimiter = delimiter
        self._skip_empty = skip_empty
        self._on_error = on_error

    @asynccontextmanager
    async def corpus(self) -> AsyncIterator["Reader[CorpusRecord]"]:
        """Reads documents; one without an id gets its line number."""
        async with spooled(self._request, self._limits) as file, self._rows(file) as found:
            yield self._reader(found, lambda line, number: corpora.record(line, str(number)), corpora.identifier)

    @asynccontextmanager
    async def dataset(self, grader: str | None) -> AsyncIterator["Reader[DatasetItem]"]:
        """Reads items, with what their grader needs."""
        async with spooled(self._request, self._limits) as file, self._rows(file) as found:
            yield self._reader(found, lambda line, _: datasets.item(line, grader), datasets.identifier)

    @asynccontextmanager
    async def given(self, items: Items, columns: ColumnMapping) -> AsyncIterator["Reader[Answered]"]:
        """Reads what another system answered to `items`."""
        async with spooled(self._request, self._limits) as file, self._rows(file, columns.names) as found:
            yield self._reader(found, AnswerReader(items, columns), lambda _: None)

    @asynccontextmanager
    async def _rows(self, file: IO[bytes], names: tables.Names = tables.KNOWN) -> AsyncIterator[Iterator[Row]]:
        """The rows of the body; nobody may read on when this ends, for then whatever unpacks them is stopped."""
        limits = self._limits
        found = rows.read(
            file,
            SOURCE,
            self._format,
            delimiter=self._delimiter,
            longest=limits.line_bytes,
            decompressed=limits.decompressed_bytes,
            names=names,
        )
        with closing(found):
            yield found

    def _reader(
        self, found: Iterator[Row], read: Callable[[Fields, int], Record], identifier: Callable[[Record], str | None]
    ) -> Reader[Record]:
        return Reader(
            found,
            read,
            identifier,
            skip_empty=self._skip_empty,
            on_error=self._on_error,
            most=self._limits.upload_rows,
        )


Uploaded = Annotated[Upload, Depends()]


def _declared(request: Request) -> Format:
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media == "multipart/form-data":
        raise Invalid("the body is a form", hint="send the file itself: curl --data-binary @FILE")
    return MEDIA_TYPES.get(media, Format.AUTO)


@asynccontextmanager
async def spooled(request: Request, limits: Limits) -> AsyncIterator[IO[bytes]]:
    """The whole body, on disk.

    Raises:
        BadRequest: the client is gone.
        OutOfSpace: there is no room for it.
        TooLarge: it is longer than an upload may be; said as soon as it is known.
    """
    if int(request.headers.get("content-length", "0")) > limits.upload_bytes:
        raise _too_large(limits)
    with _refusing_full_disk(), tempfile.TemporaryFile() as file:
        await _spool(request, file, limits)
        file.seek(0)
        yield file


@contextmanager
def _refusing_full_disk() -> Iterator[None]:
    """Around the file, too: closing it writes what is left."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = f"there is no room for the upload in {tempfile.gettempdir()} ({error.strerror}); nothing was stored"
        raise OutOfSpace(said, hint="make room, or set TMPDIR to a larger disk, and send it again") from error


async def _spool(request: Request, file: IO[bytes], limits: Limits) -> None:
    try:
        async for chunk in request.stream():
            if file.tell() + len(chunk) > limits.upload_bytes:
                raise _too_large(limits)
            await to_thread.run_sync(file.write, chunk)
    except ClientDisconnect as error:
        raise BadRequest("the upload broke off before its end", hint="send it again") from error


def _too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"an upload may have {limits.upload_bytes} bytes", hint="split it, or see `limits.upload_bytes`")


async def batches(reader: Reader[Record]) -> AsyncGenerator[list[Record], None]:
    """The reader's records in lists, each read in a worker thread while the one before is stored.

    A list has at most `BATCH` records, and ends with the one that passes `BATCH_BYTES`: two lists are in memory.
    """
    records = iter(reader)

    def following() -> list[Record]:
        batch: list[Record] = []
        most = reader.bytes + BATCH_BYTES
        while len(batch) < BATCH and reader.bytes < most and (record := next(records, None)) is not None:
            batch.append(record)
        return batch

    reading = asyncio.create_task(to_thread.run_sync(following))
    try:
        while batch := await reading:
            reading = asyncio.create_task(to_thread.run_sync(following))
            yield batch
    finally:
        # Whoever stops early closes the file next: nobody may read on, and no error of that is news.
        await asyncio.gather(reading, return_exceptions=True)


def left_out(reader: Reader[Any]) -> dict[str, Any]:
    """What the answer says about lines that were not stored."""
    lines = [Rejected(line=each.line, message=each.said) for each in reader.rejections]
    return {"skipped": reader.skipped, "rejected": reader.rejected, "rejected_lines": lines}
