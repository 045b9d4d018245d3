"""The process that unpacks one Parquet file; it may die of what it reads, and nobody else does.

The file is on stdin. On stdout is a line for each row: its kind (a byte), then JSON. The last line says how it ended; a
process that was killed says nothing.
"""

import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import IO, Any

import msgspec

from shared.errors import InvalidLine, TooLarge
from shared.ingest import fields, lines
from shared.ingest.lines import Defect

MEMORY_BYTES = 512 << 20
"""Address space; Python and pyarrow take 220 MiB of it."""
CPU_S = 300
"""Of the processor. It also ends a process whose parent is gone and that writes nothing."""
BATCH = 64
"""Rows unpacked at once: of the longest ones that are allowed they take 64 MiB."""
BUFFER_BYTES = 1 << 20
ESCAPED = 6
"""Bytes that JSON takes for one character at most."""
ROW, DEFECT, END, INVALID, TOO_LARGE = b"r", b"d", b"e", b"i", b"l"


def main(longest: int, most: int) -> None:
    """Write the rows of the file on stdin; `longest` is the limit of a row's text, `most` of all that is unpacked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "wb", buffering=BUFFER_BYTES) as out:
        os.dup2(2, 1)  # whatever else prints
        try:
            for line in answer(sys.stdin.buffer, longest, most):
                out.write(line)
        except BrokenPipeError:
            os._exit(0)  # nobody reads on


def answer(file: IO[bytes], longest: int, most: int) -> Iterator[bytes]:
    """All lines."""
    try:
        for content in rows(file, longest, most):
            yield _line(DEFECT, str(content)) if isinstance(content, Defect) else ROW + content + b"\n"
        yield _line(END, "")
    except InvalidLine as error:
        yield _line(INVALID, error.said)
    except TooLarge as error:
        yield _line(TOO_LARGE, error.message)
    except MemoryError:
        yield _line(TOO_LARGE, f"needs more than {MEMORY_BYTES >> 20} MiB to be unpacked")


def _line(kind: bytes, said: str) -> bytes:
    return kind + json.dumps(said).encode() + b"\n"


def rows(file: IO[bytes], longest: int, most: int) -> Iterator[bytes | Defect]:
    """Every row as a JSON object of the known columns, or what is wrong with it.

    Raises:
        InvalidLine: the file is damaged, or has no column that is known; the caller knows source and row.
        TooLarge: it unpacks to more than `most` bytes.
        MemoryError: or to more than the process may take.
    """
    import pyarrow as pa

    try:
        unpacked = 0
        for columns in _batches(file, most):
            unpacked += sum(column.nbytes for column in columns.values())
            if unpacked > most:
                raise _too_large(most)
            for row in range(len(next(iter(columns.values())))):
                yield _content(columns, row, longest)
    except MemoryError:  # also an ArrowException
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = f"is a damaged or truncated Parquet file ({str(error)[:200]}); download or write it again"
        raise InvalidLine("", 0, said) from error


def _batches(file: IO[bytes], most: int) -> Iterator[dict[str, Any]]:
    """Columns by name, group by group, so that damage in one is said where it begins; pages are read one by one."""
    from pyarrow import parquet

    table = parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
    names = _known(table.schema_arrow.names)
    if _declared(table.metadata, names) > most:
        raise _too_large(most)
    for group in range(table.num_row_groups):
        for batch in table.iter_batches(BATCH, row_groups=[group], columns=names, use_threads=False):
            yield dict(zip(batch.schema.names, map(_decoded, batch.columns), strict=True))


def _decoded(column: Any) -> Any:
    """The column without its dictionary, whose size would be counted with every batch."""
    import pyarrow as pa

    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _known(names: list[str]) -> list[str]:
    try:
        fields.check_count(names)
    except Defect as defect:
        raise InvalidLine("", 0, str(defect)) from defect
    known = [name for name in names if name in fields.KNOWN]
    if not known:
        said = f"has no column that is known (it has {', '.join(names)[:200]})"
        raise InvalidLine("", 0, f"{said}; name one `text` or `question`")
    return known


def _declared(metadata: Any, names: list[str]) -> int:
    """Bytes that these columns have without compression, as the file says; one that lies is caught while it is read."""
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    leaves = [at for at, path in enumerate(paths) if path.split(".")[0] in names]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    if any(group.num_columns != metadata.num_columns for group in groups):  # asked for a missing one, Arrow aborts
        raise InvalidLine("", 0, "is damaged: a row group has other columns than the file; write it anew")
    return sum(group.column(at).total_uncompressed_size for group in groups for at in leaves)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"unpacks to more than {most} bytes")


def _content(columns: dict[str, Any], row: int, longest: int) -> bytes | Defect:
    try:
        found = {name: _plain(_cell(column, row, longest)) for name, column in columns.items()}
        line = msgspec.json.encode(found)
    except UnicodeDecodeError:
        return Defect("is not UTF-8; write the column as UTF-8 strings")
    except RecursionError:
        return Defect("is nested too deeply; write flat columns")
    except Defect as defect:
        return defect
    text = sum(len(value) for value in found.values() if isinstance(value, str))
    return lines.too_long(longest) if text > longest or len(line) > ESCAPED * longest else line


def _cell(column: Any, row: int, longest: int) -> Any:
    """A cell as Python has it, unless it alone is longer than a row may be."""
    if column.slice(row, 1).nbytes > ESCAPED * longest:
        raise lines.too_long(longest)
    return column[row].as_py()


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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
