"""Lines of uploads: what is wrong is said with source, line and fix, and Parquet files are unpacked by a process."""

import contextlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from mathrag.errors import Invalid, InvalidLine, TooLarge
from mathrag.reading import lines, parquet_process
from mathrag.reading import rows as rows_module
from mathrag.reading.lines import LISTED, MAX_LINE_BYTES, OnError, Reader, Row
from mathrag.reading.paths import corpus_lines
from mathrag.reading.rows import MAX_DECOMPRESSED_BYTES, Format, read_parquet
from services.orchestrator.api import uploads
from shared.ingest import datasets
from shared.ingest.datasets import read_corpus
from shared.replies import CorpusRecord
from tests.unit.shared.ingest.test_uploads import as_jsonl, as_parquet, reading
from tests.unit.upload_defects import LINES, WHOLE, Body

pytestmark = pytest.mark.anyio

# What is wrong with an upload is said with source, line and fix, whatever its format; nothing else escapes.

UNPACKED_HERE = pytest.mark.usefixtures("unpacked_here")


def reader(body: Body, **options: object) -> Reader[CorpusRecord]:
    rows = reading(body.content, body.format)
    return Reader(rows, lambda line, number: datasets.record(line, str(number)), datasets.document_id, **options)  # type: ignore[arg-type]


def named(body: Body) -> str:
    return f"{body.what}-{body.format}"


@UNPACKED_HERE
@pytest.mark.parametrize("body", [*WHOLE, *LINES], ids=named)
def test_a_defect_is_said_with_its_line_and_its_fix(body: Body) -> None:
    with pytest.raises(InvalidLine) as caught:
        list(reader(body))
    assert caught.value.message.startswith(f"upload, line {body.line}: ")
    assert body.said in caught.value.message


@UNPACKED_HERE
@pytest.mark.parametrize("body", [body for body in LINES if "\n" in body.content.decode("latin-1")], ids=named)
def test_a_bad_line_never_loses_the_good_ones(body: Body) -> None:
    found = reader(body, on_error=OnError.SKIP)
    with contextlib.suppress(InvalidLine):
        assert list(found)
    assert (found.rejected, len(found.rejections)) == (len(found.rejections), found.rejected)
    assert body.line == found.rejections[0].line
    assert body.said in found.rejections[0].said


@UNPACKED_HERE
@pytest.mark.parametrize("body", [body for body in WHOLE if body.format is not Format.PARQUET], ids=named)
def test_a_defect_of_a_file_is_said_before_anything_is_sent(body: Body, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(body.content)
    with pytest.raises(InvalidLine, match=r"^mine\.jsonl, line 1: ") as caught:
        list(read_corpus(corpus_lines(tmp_path / "mine.jsonl", format=body.format)))
    assert body.said in caught.value.message


def test_all_mistakes_are_said_at_once() -> None:
    content = b"".join(b'{"text": %d}\n' % number for number in range(12))
    with pytest.raises(InvalidLine, match=r"^upload, line 1: `text` is a number") as caught:
        list(reader(Body("numbers", Format.AUTO, content, 1, "")))
    assert [other.line for other in caught.value.others] == list(range(2, 13))


def test_the_hint_of_a_rejected_upload_is_a_way_out_if_some_lines_can_be_used() -> None:
    good, bad = b'{"text": "a"}\n', b'{"text": 1}\n'
    hints = {}
    for content in (good + bad, bad + bad):
        with pytest.raises(InvalidLine) as caught:
            list(reader(Body("numbers", Format.AUTO, content, 1, ""), way_out="leave them out"))
        hints[content] = caught.value.hint
    assert hints == {good + bad: "leave them out", bad + bad: None}


def test_so_many_mistakes_end_the_reading() -> None:
    content = b"5\n" * (LISTED + 1) + b'{"text": "never read"}\n'
    found = reader(Body("arrays", Format.AUTO, content, 1, ""))
    with pytest.raises(InvalidLine):
        list(found)
    assert found.rejected == LISTED


def test_an_upload_without_a_good_line_is_an_error_even_if_lines_may_be_skipped() -> None:
    found = reader(Body("numbers", Format.AUTO, b"5\n" * 250, 1, ""), on_error=OnError.SKIP)
    with pytest.raises(InvalidLine, match="line 1: contains a number"):
        list(found)
    assert (found.rejected, len(found.rejections)) == (250, LISTED)


def test_an_empty_line_that_may_be_left_out_is_not_a_rejected_one() -> None:
    content = b'{"text": "x"}\n{"text": ""}\n{"text": 5}\n'
    found = reader(Body("", Format.AUTO, content, 1, ""), skip_empty=True, on_error=OnError.SKIP)
    assert [record.document.text for record in found] == ["x"]
    assert (found.skipped, found.rejected) == (1, 1)


def test_so_many_lines_and_no_more() -> None:
    body = Body("", Format.AUTO, b'{"text": "x"}\n{"text": ""}\n', 1, "")
    assert len(list(reader(body, skip_empty=True, most=2))) == 1
    with pytest.raises(TooLarge, match="1 lines"):
        list(reader(body, skip_empty=True, most=1))


PIECES = st.sampled_from(
    [b'"', b",", b";", b"\t", b"\n", b"\r", b"text", b"id", b"\xff", b"\0", b"x", b"{", b"[", b"\\"]
)


@given(st.sampled_from([Format.AUTO, Format.CSV, Format.JSONL]), st.sampled_from([b"", b"id,text\n"]), st.lists(PIECES))
def test_any_text_is_read_or_refused(given_format: Format, header: bytes, pieces: list[bytes]) -> None:
    with contextlib.suppress(Invalid):
        for record in reader(Body("", given_format, header + b"".join(pieces), 1, "")):
            assert record.document.text.encode()


# The same examples each time: at some damage Arrow aborts. That ends the process that reads an upload; here it would
# end the tests.
@settings(derandomize=True)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_any_damage_to_a_parquet_file_is_read_or_refused(at: int, damage: bytes) -> None:
    content = next(body.content for body in LINES if body.format is Format.PARQUET)
    at %= len(content)
    damaged = content[:at] + damage + content[at + len(damage) :]
    with contextlib.suppress(Invalid, TooLarge):
        list(parquet_process.rows(io.BytesIO(damaged), MAX_LINE_BYTES, MAX_DECOMPRESSED_BYTES))


def test_a_file_at_which_the_reading_process_aborts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aborting = tmp_path / "python"
    aborting.write_text("#!/bin/sh\nkill -ABRT $$\n", "utf-8")
    aborting.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(aborting))
    (tmp_path / "damaged.parquet").write_bytes(rows_module.MAGIC)
    with (
        (tmp_path / "damaged.parquet").open("rb") as file,
        pytest.raises(InvalidLine, match=r"cannot be unpacked \(the process that read it ended with exit status -6\)"),
    ):
        list(rows_module.read_parquet(file, "damaged.parquet", MAX_LINE_BYTES, MAX_DECOMPRESSED_BYTES))


# The process that unpacks a Parquet file ends with its reader, its death is said, and lists of rows stay small.


@pytest.fixture(scope="module")
def many() -> bytes:
    return as_parquet([{"text": "x" * 10_000} for _ in range(500)])


@pytest.fixture
def unpacking(many: bytes) -> Iterator[Any]:
    with tempfile.TemporaryFile() as file:
        file.write(many)
        file.seek(0)
        with closing(read_parquet(file, "upload", MAX_LINE_BYTES, MAX_DECOMPRESSED_BYTES)) as found:
            yield found


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def test_whoever_stops_reading_ends_the_process(unpacking: Any) -> None:
    before = children()
    next(unpacking)
    assert len(children()) == len(before) + 1
    unpacking.close()
    assert children() == before


def test_a_process_that_is_killed_is_a_refusal(unpacking: Any) -> None:
    before = children()
    next(unpacking)
    (process,) = set(children()) - set(before)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(InvalidLine, match=r"exit status -9\); export it again, or convert it to JSON lines"):
        list(unpacking)
    assert children() == before


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (as_parquet([{"a": 1}]), 1, "rename one to `text` or `question`"),
        (as_parquet([{"text": b"x"}, {"text": b"caf\xe9"}]), 2, "is not UTF-8; write the column as UTF-8 strings"),
    ],
    ids=["file", "row"],
)
def test_it_says_what_is_wrong_with_a_file_or_a_row(content: bytes, line: int, said: str) -> None:
    reader = Reader(reading(content), lambda row, number: datasets.record(row, str(number)), datasets.document_id)
    with pytest.raises(InvalidLine) as caught:
        list(reader)
    assert caught.value.message.startswith(f"upload, line {line}: ")
    assert said in caught.value.message


def test_it_knows_no_secret(monkeypatch: pytest.MonkeyPatch, unpacking: Any) -> None:
    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql://a:secret@b/c")
    before = children()
    next(unpacking)
    (process,) = set(children()) - set(before)
    assert "MATHRAG_DATABASE_URL" not in process.environ()


def test_what_unpacks_to_more_than_is_allowed_is_refused_while_it_is_read() -> None:
    file = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), ["x" * 10_000])
    parquet.write_table(pa.table({"text": column}), file, store_schema=False)
    content = file.getvalue()
    assert len(list(reading(content, decompressed=11_000_000))) == 1000
    with pytest.raises(TooLarge, match="unpacks to more than 9000000 bytes") as caught:
        list(reading(content, decompressed=9_000_000))
    assert "limits.decompressed_bytes" in str(caught.value.hint)


def test_categories_are_texts_and_counted_once() -> None:
    file = io.BytesIO()
    texts = pa.array([f"{number} {'x' * 1000}" for number in range(1000)]).dictionary_encode()
    parquet.write_table(pa.table({"text": texts}), file)
    found = list(reading(file.getvalue(), decompressed=1_500_000))
    assert [str(lines.fields(content)["text"]).split()[0] for _, _, content in found] == list(map(str, range(1000)))


async def test_rows_are_stored_in_lists_that_are_bounded_in_bytes() -> None:
    found: Iterator[Row] = reading(as_jsonl([{"id": str(n), "text": "x" * 900_000} for n in range(20)]))
    reader = Reader(found, lambda line, number: datasets.record(line, str(number)), datasets.document_id)
    async with aclosing(uploads.read_batches(reader)) as batches:
        sizes = [len(batch) async for batch in batches]
    assert sum(sizes) == 20
    assert max(sizes) * 900_000 < uploads.BATCH_BYTES + MAX_LINE_BYTES
