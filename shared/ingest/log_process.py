"""Read a log of another program in its own process (`row_process`), as parsed JSON may take much memory."""

import sys
from collections.abc import Generator, Iterator
from typing import IO

import msgspec

from mathrag.reading import answers, lines, row_process
from mathrag.reading.answers import Layout, LogLimits
from mathrag.reading.lines import Defect, Row

MEMORY_BYTES = 512 << 20
VALUE_BYTES = 16 << 20
"""Maximum size in bytes of a log that is a single JSON value, or of one sample in an archive."""
HINT = "import it with `mathrag job import`, which reads it where it is"


def read(file: IO[bytes], source: str, layout: Layout, longest: int, most: int) -> Generator[Row, None, None]:
    """Yield every answer as a line of JSON, as `answers.read_log` does. Close the generator to end the process.

    `file` must be a file of the operating system. `longest` is the limit of an answer, `most` of all samples, in bytes.

    Raises:
        InvalidLine: it is cut off or damaged, or is not such a log.
        TooLarge: it needs more memory or time than the process may take.
    """
    if layout in (Layout.LM_EVAL, Layout.OPENAI_BATCH):
        # Lines of limited length, of which several answers may come: they are numbered by line.
        yield from answers.read_log(file, source, layout, LogLimits(line=longest))
        return
    arguments = (str(longest), str(most), layout.value)
    yield from row_process.read_rows(__name__, arguments, file, source, f"log of {layout.value}", HINT)


def main(longest: int, most: int, layout: str) -> None:
    """Write the answers in the log on stdin."""
    limits = LogLimits(line=longest, value=VALUE_BYTES, unpacked=most)
    row_process.write_rows(lambda file: _read_rows(file, Layout(layout), limits), MEMORY_BYTES)


def _read_rows(file: IO[bytes], layout: Layout, limits: LogLimits) -> Iterator[bytes | Defect]:
    for _, _, content in answers.read_log(file, "", layout, limits):
        try:
            line = msgspec.json.encode(lines.fields(content))
        except Defect as defect:
            yield defect
        except RecursionError:
            yield Defect(lines.NESTED_TOO_DEEPLY)
        else:
            yield line if len(line) <= limits.line else lines.make_too_long_defect(limits.line)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
