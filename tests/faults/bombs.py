"""Small files that unpack to very much, each in a way of its own; they are built without unpacking them."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

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
