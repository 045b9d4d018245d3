"""Stream the rows of a Parquet file, which a process of bounded memory decompresses: kilobytes may become gigabytes."""

from collections.abc import Generator
from typing import IO

from shared.extras import find_missing_package
from shared.ingest import parquet_process, row_process
from shared.ingest.lines import Row

MAGIC = b"PAR1"
MAX_DECOMPRESSED_BYTES = 1 << 30
"""Maximum size of a file's columns after decompression, unless the operator sets another
(`limits.decompressed_bytes`)."""
HINT = "write it with smaller row groups, upload it in parts or as JSON lines, or raise `limits.decompressed_bytes`"


def rows(file: IO[bytes], source: str, longest: int, most: int) -> Generator[Row, None, None]:
    """Yield every row, numbered from 1, as a line of JSON. Close the generator to end the process.

    `file` must be a file of the operating system. `longest` is the limit of a row's text, `most` of all decompressed
    data, in bytes.

    Raises:
        NotInstalled: pyarrow is missing.
        InvalidLine: the file is damaged, or has no column that is known.
        TooLarge: it unpacks to more than `most`, or needs more memory than the process may take.
    """
    if missing := find_missing_package("pyarrow"):
        raise missing
    limits = (str(longest), str(most))
    yield from row_process.read_rows(parquet_process.__name__, limits, file, source, "Parquet file", HINT)
