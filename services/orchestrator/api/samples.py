"""Serves the samples of a job: pages, exports in several formats, and provenance."""

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from mathrag.installation import find_missing_package
from services.orchestrator.access.identity import Actor
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import RequestDeps
from shared.fields import WHOLE, make_model
from shared.provenance import export_lines, read_job
from shared.records import Provenance, SampleLine
from shared.samples import SampleNote, SampleRow
from shared.shapes import Scope
from shared.storage import database, jobs, samples
from shared.storage.notes import NoteChange, change_note
from shared.storage.provenance import ResultRow, load_provenance, stream_results
from shared.storage.samples import SampleSelection

GROUP = 5000
"""Rows of a row group: the most that is held in memory, and the unit that a reader may skip."""


class Outlet(io.RawIOBase):
    """A file that only grows: written bytes are taken away and sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True: the file is for writing alone."""
        return True

    def write(self, data: Any) -> int:
        """Keep a copy of the data, because the caller reuses its buffer."""
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """Return the number of bytes written so far, taken or not."""
        return self._size

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


async def write_parquet(batches: AsyncIterator[list[ResultRow]]) -> AsyncIterator[bytes]:
    """Yield a whole typed Parquet file, row group by row group; without rows it still has its schema."""
    # The import takes half a second and 60 MiB, so only requests for Parquet pay for it.
    from pyarrow.parquet import ParquetWriter

    outlet, columns = Outlet(), make_schema()
    writer = await to_thread.run_sync(ParquetWriter, outlet, columns)
    group: list[ResultRow] = []
    async for batch in batches:
        group += batch
        if len(group) >= GROUP:
            await to_thread.run_sync(_write, writer, columns, group)
            yield outlet.take()
            group = []
    if group:
        await to_thread.run_sync(_write, writer, columns, group)
        yield outlet.take()
    await to_thread.run_sync(writer.close)
    yield outlet.take()


def _write(writer: Any, columns: Any, rows: Sequence[ResultRow]) -> None:
    import pyarrow as pa

    records = [msgspec.structs.asdict(row) | {"metrics": row.metrics and [*row.metrics.items()]} for row in rows]
    writer.write_batch(pa.RecordBatch.from_pylist(records, schema=columns))


def make_schema() -> Any:
    """Return the columns of the other formats with their types."""
    import pyarrow as pa

    whole = {"index": pa.int32(), "repeat": pa.int16(), "duplicates": pa.int32()}
    thumbs = {"thumbs_up": pa.int32(), "thumbs_down": pa.int32()}
    took = {"prompt_tokens": pa.int64(), "completion_tokens": pa.int64(), "seconds": pa.float64()}
    judged = {"judged": pa.list_(pa.string()), "ratings": pa.list_(pa.int8())}
    flags = dict.fromkeys(("truncated", "correct", "strict", "unscored"), pa.bool_())
    others = {"context": pa.list_(pa.string()), "ended_at": pa.timestamp("us", tz="UTC")}
    scores = {"score": pa.float64(), "metrics": pa.map_(pa.string(), pa.float64())}
    types = {**whole, **thumbs, **flags, **others, **took, **judged, **scores}
    own = ("index", "repeat", "question", "state", "truncated", "context", "duplicates", "unscored")
    required = {*thumbs, *took, *judged, *own}
    return pa.schema(
        [pa.field(name, types.get(name, pa.string()), name not in required) for name in ResultRow.__struct_fields__]
    )


Batches = AsyncIterator[list[ResultRow]]
Name = Literal["jsonl", "csv", "parquet"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters that make a spreadsheet evaluate a cell as a formula; it strips the last three before it looks."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class ResultFormat(NamedTuple):
    """Tells the media type of a format of results, and the function that writes it.

    Results are written batch by batch as they are read, so that memory does not grow with them.
    """

    media: str
    write: Callable[[Batches], AsyncIterator[bytes]]


async def write_jsonl(batches: Batches) -> AsyncIterator[bytes]:
    """Write one JSON object per line."""
    encoder = msgspec.json.Encoder()
    async for batch in batches:
        yield encoder.encode_lines(batch)


async def write_csv(batches: Batches) -> AsyncIterator[bytes]:
    """Write CSV according to RFC 4180 in UTF-8: a header, CRLF, quotes where they are needed."""
    yield _encode_lines([ResultRow.__struct_fields__])
    async for batch in batches:
        yield _encode_lines(
            [[format_cell(getattr(row, field)) for field in ResultRow.__struct_fields__] for row in batch]
        )


def _encode_lines(rows: Any) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()


def format_cell(value: object) -> str:
    """Return a value as a CSV cell. Texts that a spreadsheet would evaluate get a leading apostrophe; numbers stay."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case tuple():
            return " ".join(map(str, value))
        case dict():
            return msgspec.json.encode(value).decode()
        case str() if value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
            return f"'{value}"
    return str(value)


FORMATS: dict[str, ResultFormat] = {
    "jsonl": ResultFormat("application/x-ndjson", write_jsonl),
    "csv": ResultFormat("text/csv", write_csv),
    "parquet": ResultFormat("application/vnd.apache.parquet", write_parquet),
}


def add_other_formats(responses: dict[int | str, Any]) -> dict[int | str, Any]:
    """Add the other formats to the `responses` that describe JSON lines."""
    table = {"schema": {"type": "string"}, "example": "index,repeat,custom_id\r\n0,0,test/algebra/12\r\n"}
    binary = {"schema": {"type": "string", "format": "binary"}, "example": "PAR1…PAR1"}
    content = {**responses[200]["content"], FORMATS["csv"].media: table, FORMATS["parquet"].media: binary}
    return {**responses, 200: {**responses[200], "content": content}}


def choose_format(asked: str | None, accept: str | None) -> str:
    """Choose the format that is requested by name, else the one that `Accept` prefers, else JSON lines."""
    if asked is not None:
        return asked
    by_media = {format_.media: name for name, format_ in FORMATS.items()}
    best, highest = "jsonl", 0.0
    for part in (accept or "").split(","):
        media, *parameters = (word.strip().lower() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        # A quality that is not a number counts as 1; of equal ones the first is preferred.
        value = float(quality) if _NUMBER.fullmatch(quality) else 1.0
        if media in by_media and value > highest:
            best, highest = by_media[media], value
    return best


# Serves `/v1/jobs/{job}/samples` and `/results`: the outcome of each question.

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class SampleFilters(make_model(SampleSelection), BaseModel):  # type: ignore[misc]
    """Which samples to list, and which page of them."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    """Upper bound of the rows on a page."""
    cursor: str | None = None
    """The `next_cursor` of the previous page; without it, the first page."""

    def make_selection(self) -> SampleSelection:
        """Return the filters without the page."""
        return SampleSelection(**self.model_dump(exclude={"limit", "cursor"}))


@route(
    router, "GET", "/{job}/results", Scope.READ, "Stream results",
    add_other_formats(answers(ResultRow, media="application/x-ndjson")), refuses=(404, 409),
)  # fmt: skip
async def results(
    job: str,
    deps: RequestDeps,
    format: Annotated[  # noqa: A002 - the API's word
        Name | None, Query(description="Format of the results; it takes precedence over `Accept`.")
    ] = None,
    prompts: Annotated[bool, Query(description="Include the generator's prompts.")] = False,  # noqa: FBT002 - a query parameter
    accept: Annotated[str | None, Header(description="Media types of the results, if `format` is missing.")] = None,
) -> Response:
    """Streams every sample that has ended so far, in dataset order, as JSON lines, CSV or Parquet
    (docs/how-to/api.md#results).
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    name = choose_format(format, accept)
    if name == "parquet" and (missing := find_missing_package("pyarrow", "mathrag-gate[parquet]")):
        raise missing
    media, write = FORMATS[name]
    # `job` has resolved, so it is an id or a name and needs no quoting.
    headers = {"Content-Disposition": f'attachment; filename="{job}.{name}"', "Vary": "Accept"}
    return StreamingResponse(
        write(stream_results(deps.database, row, prompts=prompts)), media_type=media, headers=headers
    )


@route(
    router, "GET", "/{job}/samples", Scope.READ, "List samples",
    answers(database.Page[SampleRow]), refuses=(404, 409),
)  # fmt: skip
async def sample_page(job: str, deps: RequestDeps, filters: Annotated[SampleFilters, Query()]) -> Response:
    """Lists samples of every state in dataset order, page by page. A filtered page may have fewer samples than
    `limit`, or none, although `next_cursor` is set, because each page examines a bounded part of the job. A cursor
    is valid only with the filters of its page; otherwise it answers 400.
    """
    return json(await samples.list_samples(deps.database, job, filters.limit, filters.cursor, filters.make_selection()))


@route(
    router, "GET", "/{job}/samples/{index}", Scope.READ, "Get a sample's provenance",
    answers(Provenance), refuses=(404, 409),
)  # fmt: skip
async def sample(
    job: str,
    deps: RequestDeps,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
    prompts: Annotated[bool, Query(description="Include the prompts of all models.")] = False,  # noqa: FBT002 - a query parameter
) -> Response:
    """Returns all calls that the sample waited for, with their attempts (worker, times, residency), and the texts
    of the context; with `prompts=true` also the prompts (docs/how-to/api.md#provenance).
    """
    return json(await load_provenance(deps.database, job, index, repeat, prompts=prompts))


class NoteRequest(make_model(NoteChange), BaseModel):  # type: ignore[misc]
    """What to change about one's own thumb and note; fields that are left out stay."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"thumb": "down", "note": "the gold answer is wrong"}},
    )

    def to_change(self) -> NoteChange:
        """Return the change."""
        return NoteChange(**self.model_dump())


@route(
    router, "PATCH", "/{job}/samples/{index}/note", Scope.SUBMIT, "Give a sample a thumb or a note",
    answers(list[SampleNote]), refuses=(404, 409),
)  # fmt: skip
async def note(
    job: str,
    request: NoteRequest,
    deps: RequestDeps,
    actor: Actor,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
) -> Response:
    """Changes the thumb and the note that the owner of this key gave a sample, and returns the notes of all
    authors. No result depends on them. Results, samples and their pages show them, and purging the job deletes
    them.
    """
    return json(await change_note(deps.database, actor, job, index, repeat, request.to_change()))


# Serves `/v1/jobs/{job}/provenance`: everything that a job's answers were made from, to verify elsewhere.

provenance_router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
RESPONSES = answers(SampleLine, media="application/x-ndjson")


@route(
    provenance_router,
    "GET",
    "/{job}/provenance",
    Scope.READ,
    "Stream the provenance of a job",
    RESPONSES,
    refuses=(404, 409),
)
async def provenance(
    job: str,
    deps: RequestDeps,
    format: Annotated[Literal["jsonl"], Query(description="Format of the lines.")] = "jsonl",  # noqa: A002, ARG001 - clients send it
) -> Response:
    """Streams the complete provenance of an ended job, which you can keep and verify
    (docs/how-to/api.md#provenance): one line per sample, with its link of the hash chain. Answers 409 if the job
    has not ended.
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    exported = await read_job(deps.database, row)
    return StreamingResponse(export_lines(deps.database, exported), media_type="application/x-ndjson")
