"""The process that unpacks a Parquet file ends with its reader, its death is said, and lists of rows stay small."""

import io
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, closing
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from services.orchestrator.api import uploads
from shared.errors import InvalidLine, TooLarge
from shared.ingest import datasets, lines
from shared.ingest.lines import MAX_LINE_BYTES, Reader, Row
from shared.ingest.rows import MAX_DECOMPRESSED_BYTES, read_parquet
from tests.unit.shared.ingest.test_uploads import as_jsonl, as_parquet, reading

pytestmark = pytest.mark.anyio


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
    with pytest.raises(InvalidLine, match=r"exit status -9\); write it again, or convert it to JSON lines"):
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
