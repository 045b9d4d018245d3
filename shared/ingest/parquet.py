"""Parquet: row groups as a stream, of the known columns alone."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import IO, Any

from shared.errors import InvalidLine
from shared.ingest import fields, lines
from shared.ingest.lines import Content, Defect, Row

MAGIC = b"PAR1"
BATCH = 500
"""Rows taken apart at once."""


def rows(file: IO[bytes], source: str, longest: int) -> Iterator[Row]:
    """Every row as fields, numbered from 1.

    Raises:
        InvalidLine: the file is damaged, or has no column that is known.
    """
    import pyarrow as pa  # here, because it takes 60 MB that nobody else needs
    from pyarrow import parquet

    row = 0
    try:
        table = parquet.ParquetFile(file)
        columns = _columns(table.schema_arrow.names, source)
        for batch in _batches(table, columns):
            for offset in range(batch.num_rows):
                row += 1
                yield source, row, _content(batch, offset, longest)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = f"is a damaged or truncated Parquet file ({str(error)[:200]}); download or write it again"
        raise InvalidLine(source, row + 1, said) from error


def _batches(table: Any, columns: list[str]) -> Iterator[Any]:
    """Group by group, so that damage in one is said where it begins."""
    for group in range(table.num_row_groups):
        yield from table.iter_batches(batch_size=BATCH, row_groups=[group], columns=columns)


def _columns(names: list[str], source: str) -> list[str]:
    known = [name for name in names if name in fields.KNOWN]
    if not known:
        said = f"has no column that is known (it has {', '.join(names)[:200]})"
        raise InvalidLine(source, 1, f"{said}; name one `text` or `question`")
    return known


def _content(batch: Any, row: int, longest: int) -> Content:
    try:
        cells = zip(batch.schema.names, batch.columns, strict=True)
        found = {name: _plain(column[row].as_py()) for name, column in cells}
        lines.check_strings(found)
    except UnicodeDecodeError:
        return Defect("is not UTF-8; write the column as UTF-8 strings")
    except Defect as defect:
        return defect
    if sum(len(value) for value in found.values() if isinstance(value, str)) > longest:
        return lines.too_long(longest)
    return found


def _plain(value: Any) -> Any:
    """`value` as JSON has it: old writers keep text as bytes, pandas an absent number as NaN."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
