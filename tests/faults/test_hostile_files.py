"""Faults of uploads that are small and would take very much: they are refused, and the orchestrator stays small."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.faults.recording import Seen
from tests.running import RunningStack

# Files that unpack to very much, each in a way of its own; they are built without unpacking them.

MEGABYTE = 1_000_000


def longest_rows() -> bytes:
    """5,000 rows that are each shorter than a row may be: 4.5 GB."""
    return _write([pa.table({"text": _repeat("x" * 900_000, 5_000)})])


def long_texts() -> bytes:
    """50 rows of one text of 100 MB, which stands in the dictionary once: 5 GB."""
    return _write([pa.table({"text": _repeat("x" * (100 * MEGABYTE), 50)})])


def nested_lists() -> bytes:
    """Make a file with one row that holds a list of 50,000,000 equal texts."""
    offsets, texts = pa.array([0, 50_000_000], pa.int32()), _repeat("the same", 50_000_000)
    return _write([pa.table({"text": ["x"], "messages": pa.ListArray.from_arrays(offsets, texts)})])


def many_groups() -> bytes:
    """500 row groups of four rows: 1.8 GB."""
    return _write([pa.table({"text": _repeat("x" * 900_000, 4)})] * 500)


def many_columns() -> bytes:
    """Make a file with 20,000 columns."""
    return _write([pa.table({"text": ["x"], **{f"c{number}": [1] for number in range(20_000)}})])


def lying() -> bytes:
    """3 GB in plain pages, of which the footer says that they are 1 byte long."""
    group = pa.table({"text": ["x" * 900_000] * 50})
    honest = _write([group] * 66, use_dictionary=False)
    size = parquet.read_metadata(io.BytesIO(honest)).row_group(0).column(0).total_uncompressed_size
    return honest.replace(_varint(size), _pad(1, len(_varint(size))))


FILES: dict[str, Callable[[], bytes]] = {
    each.__name__: each for each in (longest_rows, long_texts, nested_lists, many_groups, many_columns, lying)
}


def wide_header(columns: int) -> bytes:
    """A CSV file of one row under so many names."""
    names = ["text", *(f"c{number}" for number in range(columns - 1))]
    return ",".join(names).encode() + b"\n" + b",".join([b"x"] * columns) + b"\n"


def _repeat(text: str, times: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, dtype=np.int32)), [text])


def _write(tables: list[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    settings = {"compression": "zstd", "store_schema": False, **options}
    with parquet.ParquetWriter(file, tables[0].schema, **settings) as writer:
        for table in tables:
            writer.write_table(table)
    return file.getvalue()


def _varint(value: int) -> bytes:
    """A number as Thrift's compact protocol writes it: zigzag, seven bits a byte."""
    return bytes(_sevens(value * 2))


def _sevens(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value


def _pad(value: int, length: int) -> bytes:
    """Encode a number in more bytes than it needs, so that nothing behind it moves."""
    digits = [value * 2 >> 7 * at & 127 for at in range(length)]
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


# What the orchestrator takes for them.

PEAK_MIB = 900
"""Of the orchestrator, whatever is uploaded."""
CHILD_MIB = 512
"""Of the process that unpacks a file."""


class Memory:
    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self.child = 0.0

    def watch(self) -> None:
        while not self._done.wait(0.02):
            for child in self._process.children():
                try:
                    self.child = max(self.child, child.memory_info().rss / (1 << 20))
                except psutil.NoSuchProcess:
                    continue

    def stop(self) -> None:
        self._done.set()

    @property
    def own(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def children(self) -> list[psutil.Process]:
        return self._process.children()


@contextmanager
def watch_memory(pid: int) -> Iterator[Memory]:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    memory = Memory(pid)
    watching = threading.Thread(target=memory.watch)
    watching.start()
    try:
        yield memory
    finally:
        memory.stop()
        watching.join()


@pytest.mark.fault("X6")
@pytest.mark.parametrize("name", FILES)
def test_a_small_parquet_file_of_gigabytes_is_refused_and_the_orchestrator_stays_small(
    stack: RunningStack, seen: Seen, name: str
) -> None:
    file = FILES[name]
    seen.describe(f"a Parquet file, {file.__doc__}".rstrip("."))
    content = file()
    with watch_memory(stack.pid("orchestrator")) as memory:
        refused = stack.api.post(f"/v1/corpora?name=X6-{name}", content=content, timeout=300)
    assert refused.status_code in (413, 422), refused.text
    assert refused.json()["detail"].startswith("upload")
    assert memory.own < PEAK_MIB
    assert memory.child <= CHILD_MIB
    assert memory.children() == []
    assert stack.api.get(f"/v1/corpora/X6-{name}").status_code == 404
    good = stack.api.post(f"/v1/datasets?name=X6-{name}", content=b'{"question": "What is 1 + 1?"}\n')
    assert good.status_code == 201
    seen.note("refused in words, nothing kept; the process that unpacked it is gone")
    seen.figure("bytes uploaded", len(content))
    seen.figure("orchestrator, MiB at most", memory.own)
    seen.figure("unpacking process, MiB at most", memory.child)


@pytest.mark.fault("X7")
def test_a_csv_header_of_40000_columns_is_refused_at_once(stack: RunningStack, seen: Seen) -> None:
    seen.describe("a CSV file whose header has 40,000 columns")
    refused = stack.api.post("/v1/corpora?name=X7", content=wide_header(40_000), timeout=30)
    assert refused.status_code == 422
    assert "has 40000 columns, more than 1000" in refused.json()["detail"]
    assert stack.api.get("/v1/corpora/X7").status_code == 404
    seen.note("refused with the number of columns and the limit")
    seen.figure("seconds until it is refused", refused.elapsed.total_seconds())
