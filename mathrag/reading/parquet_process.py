"""Decompress one Parquet file in a separate process (`row_process`)."""

import math
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import IO, Any

import msgspec

from mathrag.errors import InvalidLine, TooLarge
from mathrag.reading import columns, lines, row_process, tables
from mathrag.reading.lines import Defect
from mathrag.reading.row_process import BUFFER_BYTES
from mathrag.reading.tables import ColumnNames, list_unknown

MEMORY_BYTES = 512 << 20
"""Maximum address space, in bytes; Python and pyarrow take 220 MiB of it."""
BATCH = 64
"""Rows that are decompressed together; rows of the largest allowed size take 64 MiB."""
ESCAPED = 6
"""Maximum number of bytes for one character in JSON."""


def main(longest: int, most: int, *pairs: str) -> None:
    """Write the rows of the file on stdin. `longest` limits a row's text and `most` all decompressed data, both in
    bytes; `pairs` are the columns that the user chose."""
    names = tables.choose_columns(columns.Columns(columns.UPLOADED, pairs))
    row_process.write_rows(lambda file: rows(file, longest, most, names), MEMORY_BYTES)


def rows(file: IO[bytes], longest: int, most: int, names: ColumnNames = tables.KNOWN) -> Iterator[bytes | Defect]:
    """Yield every row as a JSON object of the known columns, or as a defect.

    Raises:
        InvalidLine: the file is damaged, or has no known column; the caller adds source and row.
        TooLarge: the file unpacks to more than `most` bytes.
        MemoryError: the file unpacks to more than the memory of the process.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        unpacked = 0
        table = parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        unknown = dict.fromkeys(
            list_unknown(table.schema_arrow.names, names)
        )  # the first row lists them without values
        for cells in _batches(table, most, names):
            unpacked += sum(column.nbytes for column in cells.values())
            if unpacked > most:
                raise _make_too_large(most)
            for row in range(len(next(iter(cells.values())))):
                yield _encode_row(cells, row, longest, unknown)
                unknown = {}
    except MemoryError:  # also an ArrowException
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"is a damaged or truncated Parquet file ({str(error)[:200]}); download or write it again"
        raise InvalidLine("", 0, problem) from error


def _batches(table: Any, most: int, known: ColumnNames) -> Iterator[dict[str, Any]]:
    """Yield columns by name, row group by row group, so that damage is reported at its start. Pages are read one by
    one."""
    import pyarrow as pa

    try:
        lines.check_columns(table.schema_arrow.names)
    except Defect as defect:
        raise InvalidLine("", 0, str(defect)) from defect
    names = [name for name in table.schema_arrow.names if known.columns.find(name) is not None]
    if not names:
        problem = f"has no known column (it has {', '.join(table.schema_arrow.names)[:200]})"
        advice = "rename one to `text` or `question`, or name one: --column question=COLUMN"
        raise InvalidLine("", 0, f"{problem}; {advice}")
    # The uncompressed size of these columns according to the file; reading detects a false size.
    metadata = table.metadata
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    leaves = [at for at, path in enumerate(paths) if path.split(".")[0] in names]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    if any(
        group.num_columns != metadata.num_columns for group in groups
    ):  # Arrow aborts the process on a missing column
        raise InvalidLine("", 0, "is damaged: a row group has other columns than the file; export it again")
    declared_bytes = sum(group.column(at).total_uncompressed_size for group in groups for at in leaves)
    if declared_bytes > most:
        raise _make_too_large(most)
    for group in range(table.num_row_groups):
        for batch in table.iter_batches(BATCH, row_groups=[group], columns=names, use_threads=False):
            # Read without dictionaries, whose size would count in every batch.
            yield {
                name: column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }


def _make_too_large(most: int) -> TooLarge:
    return TooLarge(f"unpacks to more than {most} bytes")


def _encode_row(cells: dict[str, Any], row: int, longest: int, unknown: dict[str, None]) -> bytes | Defect:
    try:
        found = unknown | {name: _to_json(_cell(column, row, longest)) for name, column in cells.items()}
        line = msgspec.json.encode(found)
    except UnicodeDecodeError:
        return Defect("is not UTF-8; write the column as UTF-8 strings")
    except RecursionError:
        return Defect("is nested too deeply; write flat columns")
    except Defect as defect:
        return defect
    text = sum(len(value) for value in found.values() if isinstance(value, str))
    return lines.make_too_long_defect(longest) if text > longest or len(line) > ESCAPED * longest else line


def _cell(column: Any, row: int, longest: int) -> Any:
    """Return a cell as a Python value, unless the cell alone exceeds the size of a row."""
    if column.slice(row, 1).nbytes > ESCAPED * longest:
        raise lines.make_too_long_defect(longest)
    return column[row].as_py()


def _to_json(value: Any) -> Any:
    """Convert `value` to JSON: old writers store text as bytes, and pandas stores a missing number as NaN."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _to_json(each) for key, each in value.items()}
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
