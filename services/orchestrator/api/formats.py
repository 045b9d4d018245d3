"""Writes results as JSON lines, CSV or Parquet, batch by batch as they are read, so that memory does not grow with
them.
"""

import csv
import io
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from services.orchestrator.api.parquet import write_parquet
from shared.storage.provenance import ResultRow

Batches = AsyncIterator[list[ResultRow]]
Name = Literal["jsonl", "csv", "parquet"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters that make a spreadsheet evaluate a cell as a formula; it strips the last three before it looks."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class ResultFormat(NamedTuple):
    """Tells the media type of a format of results, and the function that writes it."""

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
    preferred = sorted(_parse_preferences(accept or ""), key=lambda each: -each[1])
    by_media = {format_.media: name for name, format_ in FORMATS.items()}
    return next((by_media[media] for media, quality in preferred if media in by_media and quality > 0), "jsonl")


def _parse_preferences(accept: str) -> list[tuple[str, float]]:
    """Return (media type, quality) in the order of the header; a quality that is not a number counts as 1."""
    found = []
    for part in accept.split(","):
        media, *parameters = (word.strip().lower() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        found.append((media, float(quality) if _NUMBER.fullmatch(quality) else 1.0))
    return found
