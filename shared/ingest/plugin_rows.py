"""Read one file with a plug-in in its own process (`row_process`), of bounded memory and time.

The plug-in's reader is called with the open file, and yields a mapping for each row, with the names of JSON lines.
"""

import signal
import sys
from collections.abc import Generator, Iterator
from importlib import metadata
from typing import IO, Any

import msgspec

from mathrag.errors import InvalidLine, TooLarge
from mathrag.reading import lines, row_process
from mathrag.reading.lines import Defect, Row
from shared.plugins.catalogue import code_hash, read_texts
from shared.shapes import Kind

MEMORY_BYTES = 1 << 30
WALL_S = 900
"""Seconds after which a reader is ended even if it sleeps."""
HINT = "upload it in parts, or raise `limits.decompressed_bytes`"


def read(file: IO[bytes], source: str, reader: str, longest: int, most: int) -> Generator[Row, None, None]:
    """Yield every row, numbered from 1, as a line of JSON. Close the generator to end the process.

    `file` must be a file of the operating system. `longest` is the limit of a row's text, `most` of all rows, in bytes.

    Raises:
        Unavailable: the plug-in cannot be used; the message says why.
        InvalidLine: it has raised an error.
        TooLarge: it makes more than `most`, or takes more memory or time than the process may.
    """
    from shared.plugins.loading import find_usable  # the process itself does without it

    plugin = find_usable(Kind.READER, reader)
    arguments = (str(longest), str(most), plugin.value, plugin.distribution, plugin.pin.hash)
    yield from row_process.read_rows(__name__, arguments, file, source, f"file that {plugin.pin} has read", HINT)


def main(longest: int, most: int, value: str, distribution: str, expected: str) -> None:
    """Write the rows of the file on stdin; `longest` and `most` limit a row and all rows, in bytes."""
    signal.alarm(WALL_S)
    row_process.write_rows(lambda file: _read_rows(file, longest, most, value, distribution, expected), MEMORY_BYTES)


def _read_rows(
    file: IO[bytes], longest: int, most: int, value: str, distribution: str, expected: str
) -> Iterator[bytes | Defect]:
    """Yield every row of the plug-in as a JSON object, or as its error.

    Raises:
        InvalidLine: the plug-in has raised an error, or has changed.
        TooLarge: it makes more than `most` bytes, or takes more memory than the process may.
    """
    if code_hash(read_texts(metadata.distribution(distribution), value)) != expected:
        problem = f"cannot be read: {distribution} has changed since the service started; restart it"
        raise InvalidLine("", 0, problem)
    written = 0
    for row in _call_reader(file, value, distribution):
        content = _encode(row, longest)
        written += len(str(content) if isinstance(content, Defect) else content)
        if written > most:
            raise TooLarge(f"yields more than {most} bytes of rows")
        yield content


def _call_reader(file: IO[bytes], value: str, distribution: str) -> Iterator[Any]:
    """Yield the rows of the plug-in; an error of the plug-in becomes an error of the file."""
    try:
        yield from metadata.EntryPoint(name="", value=value, group=Kind.READER.group).load()(file)
    except MemoryError as error:
        raise TooLarge(f"needs more than {MEMORY_BYTES >> 20} MiB of memory to read") from error
    except Exception as error:
        problem = f"cannot be read: {distribution} raised {type(error).__name__}: {error}"[:1000]
        raise InvalidLine("", 0, problem) from error


def _encode(row: Any, longest: int) -> bytes | Defect:
    if not isinstance(row, dict):
        return Defect(f"is {type(row).__name__}, not a mapping of names to values")
    try:
        content = msgspec.json.encode({str(name): each for name, each in row.items()})
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        return Defect(f"cannot be encoded as JSON: {error}")
    return content if len(content) <= longest else lines.make_too_long_defect(longest)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6])
