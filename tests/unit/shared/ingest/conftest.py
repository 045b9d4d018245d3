"""Reading Parquet files in this process, for what is in them: a process for each takes longer than all the rest."""

from collections.abc import Iterator, Sequence
from typing import IO

import pytest

from mathrag.reading import parquet_process, row_process, tables
from mathrag.reading.columns import UPLOADED, Columns
from mathrag.reading.lines import Row


@pytest.fixture
def unpacked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_process, "read_rows", read_rows)


def read_rows(_module: str, limits: Sequence[str], file: IO[bytes], source: str, what: str, hint: str) -> Iterator[Row]:
    names = tables.choose_columns(Columns(UPLOADED, limits[2:]))
    found = parquet_process.rows(file, *map(int, limits[:2]), names)
    for number, line in enumerate(row_process.make_lines(found, parquet_process.MEMORY_BYTES), 1):
        if line[:1] == row_process.END:
            return
        yield source, number, row_process.read_line(line, source, number, what, hint)
