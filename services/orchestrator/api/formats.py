"""Results as JSON lines, CSV or Parquet: written batch by batch as they are read, so memory does not grow with them."""

import csv
import io
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from services.orchestrator.api.parquet import parquet
from shared.storage.results import ResultRow

Batches = AsyncIterator[list[ResultRow]]
Name = Literal["jsonl", "csv", "parquet"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet computes a cell that begins like this (the last three: after it has dropped them)."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class Format(NamedTuple):
    """How results are written."""

    media: str
    write: Callable[[Batches], AsyncIterator[bytes]]


async def jsonl(batches: Batches) -> AsyncIterator[bytes]:
    """One JSON object per line."""
    encoder = msgspec.json.Encoder()
    async for batch in batches:
        yield encoder.encode_lines(batch)


async def comma_separated(batches: Batches) -> AsyncIterator[bytes]:
    """RFC 4180 in UTF-8: a header, CRLF, quotes where they are needed."""
    yield _lines([ResultRow.__struct_fields__])
    async for batch in batches:
        yield _lines([[cell(getattr(row, field)) for field in ResultRow.__struct_fields__] for row in batch])


def _lines(rows: Any) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()


def cell(value: object) -> str:
    """A value as a CSV cell; a text that a spreadsheet would compute gets an apostrophe in front, numbers stay."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case tuple():
            return " ".join(map(str, value))
        case str() if value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
            return f"'{value}"
    return str(value)


FORMATS: dict[str, Format] = {
    "jsonl": Format("application/x-ndjson", jsonl),
    "csv": Format("text/csv", comma_separated),
    "parquet": Format("application/vnd.apache.parquet", parquet),
}


def with_other_formats(responses: dict[int | str, Any]) -> dict[int | str, Any]:
    """`responses` of JSON lines, with the other formats."""
    table = {"schema": {"type": "string"}, "example": "index,repeat,custom_id\r\n0,0,test/algebra/12\r\n"}
    binary = {"schema": {"type": "string", "format": "binary"}, "example": "PAR1…PAR1"}
    content = {**responses[200]["content"], FORMATS["csv"].media: table, FORMATS["parquet"].media: binary}
    return {**responses, 200: {**responses[200], "content": content}}


def choose_format(asked: str | None, accept: str | None) -> str:
    """The format that was asked for by name, else the one that `Accept` prefers, else JSON lines."""
    if asked is not None:
        return asked
    preferred = sorted(_preferences(accept or ""), key=lambda each: -each[1])
    by_media = {format_.media: name for name, format_ in FORMATS.items()}
    return next((by_media[media] for media, quality in preferred if media in by_media and quality > 0), "jsonl")


def _preferences(accept: str) -> list[tuple[str, float]]:
    """(media type, quality) in the order given; a quality that is no number counts as 1."""
    found = []
    for part in accept.split(","):
        media, *parameters = (word.strip().lower() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        found.append((media, float(quality) if _NUMBER.fullmatch(quality) else 1.0))
    return found
