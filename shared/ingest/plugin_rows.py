"""Stream the rows that a plug-in's reader makes of an uploaded file, in a process of bounded memory and time."""

from collections.abc import Generator
from typing import IO

from shared.ingest import plugin_rows_process, row_process
from shared.ingest.lines import Row
from shared.plugins.loading import find_usable
from shared.shapes import Kind

HINT = "upload it in parts, or raise `limits.decompressed_bytes`"


def rows(file: IO[bytes], source: str, reader: str, longest: int, most: int) -> Generator[Row, None, None]:
    """Yield every row, numbered from 1, as a line of JSON. Close the generator to end the process.

    `file` must be a file of the operating system. `longest` is the limit of a row's text, `most` of all rows, in bytes.

    Raises:
        Unavailable: the plug-in cannot be used; the message says why.
        InvalidLine: it has raised an error.
        TooLarge: it makes more than `most`, or takes more memory or time than the process may.
    """
    plugin = find_usable(Kind.READER, reader)
    arguments = (str(longest), str(most), plugin.value, plugin.distribution, plugin.pin.hash)
    what = f"file that {plugin.pin} has read"
    yield from row_process.read_rows(plugin_rows_process.__name__, arguments, file, source, what, HINT)
