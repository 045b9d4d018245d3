"""What is wrong with an upload is said with source, line and fix, whatever its format; nothing else escapes."""

import contextlib
import io
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest import datasets, parquet_process
from shared.ingest import rows as rows_module
from shared.ingest.datasets import read_corpus
from shared.ingest.lines import LISTED, MAX_LINE_BYTES, QUOTED, OnError, Reader
from shared.ingest.paths import corpus_lines
from shared.ingest.rows import MAX_DECOMPRESSED_BYTES, Format
from shared.replies import CorpusRecord
from tests.unit.shared.ingest.test_uploads import reading
from tests.unit.upload_defects import LINES, WHOLE, Body

pytestmark = pytest.mark.anyio

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
    assert str(caught.value.hint).count("upload, line") == QUOTED
    assert str(caught.value.hint).endswith("…")


def test_so_many_mistakes_end_the_reading() -> None:
    content = b"[]\n" * (LISTED + 1) + b'{"text": "never read"}\n'
    found = reader(Body("arrays", Format.AUTO, content, 1, ""))
    with pytest.raises(InvalidLine):
        list(found)
    assert found.rejected == LISTED


def test_an_upload_without_a_good_line_is_an_error_even_if_lines_may_be_skipped() -> None:
    found = reader(Body("arrays", Format.AUTO, b"[]\n" * 250, 1, ""), on_error=OnError.SKIP)
    with pytest.raises(InvalidLine, match="line 1: holds an array"):
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
