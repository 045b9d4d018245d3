"""Results as JSON lines, CSV and Parquet: the same rows, and nothing that a spreadsheet would run."""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from services.orchestrator.api import samples
from services.orchestrator.api.samples import FORMATS, Outlet, choose_format, format_cell
from shared.storage.provenance import ResultRow

pytestmark = pytest.mark.anyio

ENDED = datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC)


def row(index: int = 0, **fields: Any) -> ResultRow:
    known: dict[str, Any] = {
        "custom_id": None, "question": "What is $2+3$?", "gold": "5", "subject": None, "level": None,
        "state": "completed", "answer": "5", "extraction": "ok", "truncated": False, "correct": True, "strict": None,
        "grading_failure": None, "failure": None, "detail": None, "context": ("ab", "cd"), "duplicates": 1,
        "unscored": False, "ended_at": ENDED,
    }  # fmt: skip
    return ResultRow(index=index, repeat=0, **{**known, **fields})


async def batches(*found: Sequence[ResultRow]) -> AsyncIterator[list[ResultRow]]:
    for batch in found:
        yield list(batch)


async def written(name: str, *found: Sequence[ResultRow]) -> list[bytes]:
    return [part async for part in FORMATS[name].write(batches(*found))]


def read_csv(parts: Sequence[bytes]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(parts).decode("utf-8"), newline="")))


def read_parquet(parts: Sequence[bytes]) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(io.BytesIO(b"".join(parts)))


async def test_csv_has_a_header_crlf_and_quotes_where_they_are_needed() -> None:
    awkward = 'He said "no",\r\nthen\nleft; é'
    parts = await written("csv", [row(question=awkward)], [row(1)])
    whole = b"".join(parts)
    assert whole.startswith(b"index,repeat,custom_id,question,")
    assert whole.endswith(b"\r\n")
    first, second = read_csv(parts)
    assert (first["question"], second["index"]) == (awkward, "1")


async def test_csv_values_stay_what_they_are() -> None:
    (found,) = read_csv(await written("csv", [row(7, correct=False, strict=None)]))
    assert (found["index"], found["correct"], found["strict"], found["context"]) == ("7", "false", "", "ab cd")
    assert found["ended_at"] == "2026-11-21T08:00:00.123456+00:00"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-2+3", "=-5", "+", "--1"])
def test_a_text_that_a_spreadsheet_would_compute_is_disarmed(text: str) -> None:
    assert format_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+3", "-0.5", "-1e-3", "+.5", "-5.", "5", "\\frac{1}{2}", "x=1", "", " =1"])
def test_a_text_that_is_a_number_or_harmless_is_left_alone(text: str) -> None:
    assert format_cell(text) == text


async def test_parquet_is_typed() -> None:
    file = read_parquet(await written("parquet", [row(3, question="q\0é", correct=None)]))
    types = {field.name: str(field.type) for field in file.schema_arrow}
    assert (types["index"], types["repeat"], types["correct"]) == ("int32", "int16", "bool")
    assert (types["context"], types["ended_at"]) == ("list<element: string>", "timestamp[us, tz=UTC]")
    assert not file.schema_arrow.field("question").nullable
    (found,) = file.read().to_pylist()
    lists = {"context": ["ab", "cd"], "judged": [], "ratings": []}
    assert found == {**msgspec.structs.asdict(row(3, question="q\0é", correct=None)), **lists}


async def test_parquet_is_sent_row_group_by_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "GROUP", 4)
    rows = [row(n) for n in range(10)]
    parts = await written("parquet", *(rows[n : n + 2] for n in range(0, 10, 2)))
    file = read_parquet(parts)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [4, 4, 2]
    assert len(parts) == 4
    assert file.read().column("index").to_pylist() == list(range(10))


def test_what_was_taken_from_the_outlet_is_gone_from_memory() -> None:
    outlet = Outlet()
    outlet.write(b"abc")
    assert (outlet.take(), outlet.take(), outlet.tell()) == (b"abc", b"", 3)


@pytest.mark.parametrize("name", FORMATS)
async def test_nothing_is_a_valid_file_too(name: str) -> None:
    parts = await written(name)
    if name == "parquet":
        assert (read_parquet(parts).metadata.num_rows, read_parquet(parts).metadata.num_columns) == (0, 36)
    else:
        assert b"".join(parts).count(b"\n") == (name == "csv")


@pytest.mark.parametrize(
    ("asked", "accept", "name"),
    [
        (None, None, "jsonl"),
        (None, "*/*", "jsonl"),
        (None, "text/html, application/json", "jsonl"),
        (None, "text/csv", "csv"),
        (None, "TEXT/CSV; charset=utf-8", "csv"),
        (None, "application/vnd.apache.parquet;q=0.4, text/csv;q=0.9", "csv"),
        (None, "text/csv;q=0, application/x-ndjson", "jsonl"),
        (None, "text/csv;q=high", "csv"),
        (None, ";,q=;", "jsonl"),
        ("parquet", "text/csv", "parquet"),
    ],
)
def test_the_format_is_asked_for_by_name_or_by_accept(asked: str | None, accept: str | None, name: str) -> None:
    assert choose_format(asked, accept) == name
