"""Read one uploaded file in a process with bounded memory and time, so that a malicious file does no other harm.

The process reads the file from stdin and writes one line for each row to stdout: its kind (a byte), then JSON. The last
line has the result; a process that was killed does not write it.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import IO

import msgspec

from mathrag.errors import Invalid, InvalidLine, MathragError, TooLarge
from mathrag.reading.lines import Content, Defect, Row

CPU_S = 300
"""Maximum CPU time in seconds. It also ends a process that writes nothing and whose parent is gone."""
BUFFER_BYTES = 1 << 20
ROW, DEFECT, END, INVALID, TOO_LARGE, REFUSED = b"r", b"d", b"e", b"i", b"l", b"x"
FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables that make allocators and threads reserve less address space than the limit."""
INHERITED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
"""Environment variables that the process inherits; others may contain secrets, which it must not have because it reads
untrusted files."""


Rows = Callable[[IO[bytes]], Iterator[bytes | Defect]]
"""Function that reads a file and yields each row as a JSON object or a defect.

It raises InvalidLine (line 0 means the line of the row) or TooLarge if the rest of the file cannot be read; the parent
adds the source. The message of an Invalid is complete.
"""


def write_rows(read: Rows, memory_bytes: int) -> None:
    """Write the rows that `read` yields for the file, with at most this address space. Runs in the child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if sys.platform != "darwin":  # macOS processes reserve more address space than this at their start
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "wb", buffering=BUFFER_BYTES) as out:
        os.dup2(2, 1)  # other prints go to stderr
        try:
            for line in make_lines(read(sys.stdin.buffer), memory_bytes):
                out.write(line)
        except BrokenPipeError:
            os._exit(0)  # the parent has stopped reading


def make_lines(rows: Iterator[bytes | Defect], memory_bytes: int) -> Iterator[bytes]:
    """Yield all lines of the output; an error of `rows` becomes the last line."""
    try:
        for content in rows:
            yield _message(DEFECT, str(content)) if isinstance(content, Defect) else ROW + content + b"\n"
        yield _message(END, "")
    except InvalidLine as error:
        yield _message(INVALID, [error.line, error.said])
    except Invalid as error:
        yield _message(REFUSED, [error.message, error.hint])
    except TooLarge as error:
        yield _message(TOO_LARGE, error.message)
    except MemoryError:
        yield _message(TOO_LARGE, f"needs more than {memory_bytes >> 20} MiB of memory to unpack")


def _message(kind: bytes, said: object) -> bytes:
    """Return a line that is not a row, with its kind and a message."""
    return kind + json.dumps(said).encode() + b"\n"


def read_rows(
    module: str, arguments: Sequence[str], file: IO[bytes], source: str, what: str, hint: str
) -> Generator[Row, None, None]:
    """Start `module` with the file on its stdin, and yield its rows, numbered from 1. Runs in the parent process; close
    the generator to end the child.

    `file` must be a file of the operating system; `what` and `hint` are parts of error messages.

    Raises:
        Invalid: the file is damaged or has another format.
        TooLarge: the file unpacks to more than the limits, or needs more memory or time than the process may use.
    """
    environment = FRUGAL | {name: os.environ[name] for name in INHERITED if name in os.environ}
    command = (sys.executable, "-P", "-m", module, *arguments)
    process = subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own
    number = 0
    try:
        assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
        for line in process.stdout:
            if line[:1] == END:
                return
            number += 1
            yield source, number, read_line(line, source, number, what, hint)
        raise _explain_death(process.wait(), source, number + 1, what, hint)
    finally:
        process.kill()
        process.communicate()


def read_line(line: bytes, source: str, number: int, what: str, hint: str) -> Content:
    """Return a row, or its defect.

    Raises:
        Invalid, TooLarge: the whole file cannot be read.
    """
    kind, content = line[:1], line[1:]
    if kind == ROW:
        return content
    said = msgspec.json.decode(content)
    if kind == TOO_LARGE:
        raise TooLarge(f"{source}: the {what} {said}", hint=hint)
    if kind == INVALID:
        at, problem = said
        raise InvalidLine(source, at or number, problem)
    if kind == REFUSED:
        message, its_hint = said
        raise Invalid(message, hint=its_hint)
    return Defect(said)


def _explain_death(status: int, source: str, number: int, what: str, hint: str) -> MathragError:
    """Return the error for a process that ended without its last message."""
    if status in (-signal.SIGXCPU, -signal.SIGALRM):
        return TooLarge(f"{source}: the {what} needs more than {CPU_S} s of CPU time to unpack", hint=hint)
    problem = f"cannot be unpacked (the process that read it ended with exit status {status})"
    return InvalidLine(source, number, f"{problem}; export it again, or convert it to JSON lines")
