"""Parquet: rows as a stream, unpacked by a process of bounded memory: kilobytes may unpack to gigabytes."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from typing import IO

import msgspec

from shared.errors import InvalidLine, MathragError, TooLarge
from shared.ingest import parquet_process
from shared.ingest.lines import Defect, Row

MAGIC = b"PAR1"
MAX_DECOMPRESSED_BYTES = 1 << 30
"""A file that unpacks to more is refused, unless the operator allows another limit (`limits.decompressed_bytes`)."""
FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Without these, allocators and threads reserve more address space than the process may have."""
INHERITED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
"""The rest of the environment may hold secrets, which a process that reads strangers' files does not need."""
HINT = "write it with smaller row groups, upload it in parts or as JSON lines, or see `limits.decompressed_bytes`"


def rows(file: IO[bytes], source: str, longest: int, most: int) -> Generator[Row, None, None]:
    """Every row, numbered from 1, as a line of JSON. Close it, and the process that unpacks the file is gone.

    `file` must be one of the operating system. `longest` is the limit of a row's text, `most` of all that is unpacked,
    in bytes.

    Raises:
        InvalidLine: the file is damaged, or has no column that is known.
        TooLarge: it unpacks to more than `most`, or needs more memory than the process may take.
    """
    command = (sys.executable, "-m", parquet_process.__name__, str(longest), str(most))
    environment = FRUGAL | {name: os.environ[name] for name in INHERITED if name in os.environ}
    process = subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own
    number = 0
    try:
        assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
        for line in process.stdout:
            kind, content = line[:1], line[1:]
            if kind == parquet_process.END:
                return
            number += 1
            if kind == parquet_process.ROW:
                yield source, number, content
            else:
                yield source, number, _defect(kind, content, source, number)
        raise _died(process.wait(), source, number + 1)
    finally:
        process.kill()
        process.communicate()


def _defect(kind: bytes, content: bytes, source: str, number: int) -> Defect:
    """What is wrong with a row.

    Raises:
        InvalidLine, TooLarge: it is the file that cannot be read.
    """
    said: str = msgspec.json.decode(content)
    if kind == parquet_process.TOO_LARGE:
        raise TooLarge(f"{source}: the Parquet file {said}", hint=HINT)
    if kind == parquet_process.INVALID:
        raise InvalidLine(source, number, said)
    return Defect(said)


def _died(status: int, source: str, number: int) -> MathragError:
    """Why there is no last word of the process."""
    if status == -signal.SIGXCPU:
        said = f"takes more than {parquet_process.CPU_S} s of a processor to be unpacked"
        return TooLarge(f"{source}: the Parquet file {said}", hint=HINT)
    said = f"cannot be unpacked (the process that read it ended with exit status {status})"
    return InvalidLine(source, number, f"{said}; write it again, or as JSON lines")
