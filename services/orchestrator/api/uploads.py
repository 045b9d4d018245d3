"""Uploads: spooled to disk as they arrive, then read row by row in a worker thread.

The database is used only once the whole upload is on disk, so a slow client holds no transaction open.
"""

import asyncio
import errno
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import islice
from typing import IO, Annotated, Any, Literal, TypeVar

import msgspec
from anyio import to_thread
from fastapi import Depends, Query, Request
from starlette.requests import ClientDisconnect

from mathrag.errors import BadRequest, Invalid, OutOfSpace, TooLarge, Unavailable
from mathrag.reading import rows, tables
from mathrag.reading.answers import ColumnMapping, Layout, check_options
from mathrag.reading.columns import DOCUMENTS, UPLOADED, Columns
from mathrag.reading.lines import Fields, OnError, Reader, Row
from mathrag.reading.rows import Format
from services.orchestrator.deps import RequestDeps
from shared.ingest import datasets, log_process, plugin_rows
from shared.ingest.answers import AnswerReader, ImportedAnswer, ItemIndex
from shared.plugins.loading import find_usable
from shared.replies import CorpusRecord
from shared.samples import DatasetItem
from shared.settings import Limits
from shared.shapes import Kind

BATCH = 1000
BATCH_BYTES = 4 << 20
"""Bytes of upload lines that are stored together; a parsed JSON line may take twenty times its length in memory."""
SOURCE = "upload"
"""Name of the body in messages; only the client knows the file's name."""
MEDIA_TYPES = {
    "application/x-ndjson": Format.JSONL,
    "application/jsonl": Format.JSONL,
    "text/csv": Format.CSV,
    "text/tab-separated-values": Format.CSV,
    "application/vnd.apache.parquet": Format.PARQUET,
}
LINE = '{"id": "algebra/17", "problem": "What is $2+2$?", "solution": "Therefore $\\boxed{4}$."}\n'
TABLE = "id,question,text,answer\r\nalgebra/17,What is $2+2$?,Therefore $4$.,4\r\n"
"""Example bodies; either may be uploaded as a corpus and as a dataset."""
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
"""The body for the OpenAPI document: FastAPI cannot see that it is read as a stream."""

Record = TypeVar("Record", CorpusRecord, DatasetItem, ImportedAnswer)
Value = TypeVar("Value")


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not stored."""

    line: int
    """Number of the line, from 1; in Parquet, of the row."""
    message: str
    """Why the line was rejected."""


class Upload:
    """The body of a request and the options by which to read it."""

    def __init__(
        self,
        request: Request,
        deps: RequestDeps,
        format: Annotated[  # noqa: A002
            Format, Query(description="Format of the body; `auto` decides by Content-Type, else by the first bytes.")
        ] = Format.AUTO,
        delimiter: Annotated[
            Literal["comma", "semicolon", "tab"] | None,
            Query(description="Delimiter of CSV; by default the delimiter of the header line."),
        ] = None,
        skip_empty: Annotated[bool, Query(description="Leave out lines without text.")] = False,  # noqa: FBT002
        on_error: Annotated[
            OnError, Query(description="`reject` stores nothing if a line is bad; `skip` leaves out bad lines.")
        ] = OnError.REJECT,
        reader: Annotated[
            str | None, Query(max_length=41, description="Reader of a plug-in; replaces `format`.")
        ] = None,
        column: Annotated[
            list[str] | None,
            Query(
                description="Column of a field, such as `question=Frage`; by default the known names of each field.",
                max_length=20,
            ),
        ] = None,
    ) -> None:
        self._request = request
        self._limits = deps.settings.limits
        self._chosen_format = format
        media = get_media_type(request)
        self._format = MEDIA_TYPES.get(media, Format.AUTO) if format is Format.AUTO else format
        self._delimiter = delimiter
        self._skip_empty = skip_empty
        self._on_error = on_error
        self._plugin_reader = reader
        self.pairs = tuple(column or ())
        """Columns that the client has chosen, such as "question=Frage"."""

    @asynccontextmanager
    async def read_documents(self) -> AsyncIterator["Reader[CorpusRecord]"]:
        """Read documents; one without an id gets its line number."""
        named = Columns(DOCUMENTS, self.pairs)
        names = tables.choose_columns(Columns(UPLOADED, self.pairs))
        async with spool(self._request, self._limits) as file, self._open_rows(file, names) as found:
            yield self._make_reader(
                found, lambda line, number: datasets.record(line, str(number), named), datasets.document_id
            )

    @asynccontextmanager
    async def read_items(self, items: datasets.ItemReader) -> AsyncIterator["Reader[DatasetItem]"]:
        names = tables.choose_columns(Columns(UPLOADED, self.pairs))
        async with spool(self._request, self._limits) as file, self._open_rows(file, names) as found:
            yield self._make_reader(found, lambda line, _: items.read(line), datasets.question_id)

    @asynccontextmanager
    async def read_answers(
        self, items: ItemIndex, columns: ColumnMapping, layout: Layout | None = None
    ) -> AsyncIterator["Reader[ImportedAnswer]"]:
        """Read another system's answers to `items`; `layout` is the program whose log this is.

        Raises:
            Invalid: there is a layout, and an option that it makes useless.
        """
        if layout is not None:
            check_options(layout, self._chosen_format, self._delimiter, self._plugin_reader)
        async with spool(self._request, self._limits) as file, self._open_rows(file, columns.names, layout) as found:
            # A sample that failed in the other system is left out and named, regardless of `on_error`.
            yield self._make_reader(found, AnswerReader(items, columns), lambda _: None, skip_empty=True)

    @asynccontextmanager
    async def _open_rows(
        self, file: IO[bytes], names: tables.ColumnNames, layout: Layout | None = None
    ) -> AsyncIterator[Iterator[Row]]:
        """Yield the rows of the body. Do not read on after the context ends, because the unpacking process is
        stopped then.
        """
        limits = self._limits
        if layout is not None:
            found = log_process.read(file, SOURCE, layout, limits.line_bytes, limits.decompressed_bytes)
        elif self._plugin_reader is not None:
            # A plug-in's reader has its own format.
            given = {"format": self._chosen_format is not Format.AUTO, "delimiter": self._delimiter is not None}
            if ignored := [name for name, is_given in given.items() if is_given]:
                message = f"`{ignored[0]}`: would be ignored, because the plug-in in `reader` reads the body"
                raise Invalid(message, hint="leave one of the two out")
            try:
                await to_thread.run_sync(find_usable, Kind.READER, self._plugin_reader)
            except Unavailable as error:
                raise Invalid(f"`reader`: {error.message}", hint=error.hint) from error
            found = plugin_rows.read(file, SOURCE, self._plugin_reader, limits.line_bytes, limits.decompressed_bytes)
        else:
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

    def _make_reader(
        self,
        found: Iterator[Row],
        read: Callable[[Fields, int], Record],
        identifier: Callable[[Record], str | None],
        *,
        skip_empty: bool = False,
    ) -> Reader[Record]:
        return Reader(
            found,
            read,
            identifier,
            skip_empty=skip_empty or self._skip_empty,
            on_error=self._on_error,
            most=self._limits.upload_rows,
            way_out="correct these lines, or leave them out: --on-error skip, over HTTP `on_error=skip`",
        )


Uploaded = Annotated[Upload, Depends()]


def get_media_type(request: Request) -> str:
    """Return the media type that the request declares.

    Raises:
        Invalid: the body is a form.
    """
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media == "multipart/form-data":
        raise Invalid("the body must be a file, not a form", hint="send the file itself: curl --data-binary @FILE")
    return media


@asynccontextmanager
async def spool(request: Request, limits: Limits) -> AsyncIterator[IO[bytes]]:
    """Spool the whole body to disk.

    Raises:
        BadRequest: the client has disconnected.
        OutOfSpace: the disk is full.
        TooLarge: it is longer than an upload may be; raised as soon as that is known.
    """
    if int(request.headers.get("content-length", "0")) > limits.upload_bytes:
        raise _make_too_large(limits)
    with refuse_full_disk(), tempfile.TemporaryFile() as file:
        try:
            async for chunk in request.stream():
                if file.tell() + len(chunk) > limits.upload_bytes:
                    raise _make_too_large(limits)
                await to_thread.run_sync(file.write, chunk)
        except ClientDisconnect as error:
            raise BadRequest(
                "the connection closed before the whole upload had arrived", hint="send it again"
            ) from error
        file.seek(0)
        yield file


@contextmanager
def refuse_full_disk() -> Iterator[None]:
    """Raise OutOfSpace if the disk is full. Use it around the file as well: closing the file writes the rest."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = (
            f"the disk of {tempfile.gettempdir()} has no space for the upload ({error.strerror}); nothing was stored"
        )
        raise OutOfSpace(message, hint="free space, or set TMPDIR to a larger disk, and send it again") from error


def _make_too_large(limits: Limits) -> TooLarge:
    return TooLarge(
        f"the upload is too large: at most {limits.upload_bytes} bytes are allowed",
        hint="split it, or raise `limits.upload_bytes`",
    )


async def read_batches(reader: Reader[Record]) -> AsyncGenerator[list[Record], None]:
    """Yield the reader's records in lists, each read in a worker thread while the one before is stored.

    A list has at most `BATCH` records, and ends with the one that passes `BATCH_BYTES`. Two lists are in memory.
    """
    records = iter(reader)

    def read_batch() -> list[Record]:
        batch: list[Record] = []
        most = reader.bytes + BATCH_BYTES
        while len(batch) < BATCH and reader.bytes < most and (record := next(records, None)) is not None:
            batch.append(record)
        return batch

    reading = asyncio.create_task(to_thread.run_sync(read_batch))
    try:
        while batch := await reading:
            reading = asyncio.create_task(to_thread.run_sync(read_batch))
            yield batch
    finally:
        # A caller that stops early closes the file next: wait for the read in progress, and ignore its error.
        await asyncio.gather(reading, return_exceptions=True)


async def read_in_thread(values: Iterable[Value]) -> AsyncGenerator[list[Value], None]:
    """Yield the values in lists of at most `BATCH`, each read in a worker thread."""
    iterator = iter(values)
    while batch := await to_thread.run_sync(lambda: list(islice(iterator, BATCH))):
        yield batch


def report_rejections(reader: Reader[Any]) -> dict[str, Any]:
    """Return the answer's report about lines that were not stored."""
    lines = [Rejected(line=each.line, message=each.said) for each in reader.rejections]
    return {"skipped": reader.skipped, "rejected": reader.rejected, "rejected_lines": lines}
