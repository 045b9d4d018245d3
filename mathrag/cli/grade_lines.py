"""Answers to grade, as JSON lines from a file or a pipe: one at a time, as they arrive."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from mathrag.client.errors import Failed

STDIN = "-"
LONGEST = 1 << 20
"""Largest length of a line in bytes, as in an upload."""
EXAMPLE = '{"answer": "0.5", "gold": "\\\\frac{1}{2}"}'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class GradeInput(msgspec.Struct, frozen=True):
    """The fields of a line that are read; others are ignored."""

    answer: str | None
    """None means that there is no answer, which counts as wrong."""
    gold: str
    golds: tuple[str, ...] = ()
    """Further gold answers."""
    choices: tuple[str, ...] = ()
    """Texts of the choices A, B, C ..., for the grader `choice`."""


class AnswerLine(NamedTuple):
    """Pairs an answer with the number of its line, by which errors and results refer to it."""

    number: int
    """From 1."""
    answer: GradeInput


_ANSWER = msgspec.json.Decoder(GradeInput)


@contextmanager
def open_source(source: str) -> Iterator[BinaryIO]:
    """Open the file called `source`, or standard input for "-".

    Raises:
        OSError: it cannot be read.
    """
    if source == STDIN:
        yield sys.stdin.buffer
        return
    with Path(source).open("rb") as file:
        yield file


async def read_answers(file: BinaryIO, source: str) -> AsyncIterator[AnswerLine]:
    """Yield the answers in `file`, which is called `source`; blank lines are skipped.

    Raises:
        Failed: a line is too long or holds no answer; file and number are named.
    """
    name = "standard input" if source == STDIN else source
    number = 0
    async for line in _read_lines(file):
        number += 1
        if len(line) > LONGEST:
            raise Failed("invalid_line", f"{name}, line {number}: the line is longer than {LONGEST} bytes")
        if line.strip():
            yield AnswerLine(number, _read(line.removeprefix(_BYTE_ORDER_MARK), f"{name}, line {number}"))


def _read(line: bytes, where: str) -> GradeInput:
    try:
        return _ANSWER.decode(line)
    except msgspec.MsgspecError as error:
        raise Failed("invalid_line", f"{where}: {error}", f"write one object per line, such as {EXAMPLE}") from error


async def _read_lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines of at most `LONGEST` bytes; a longer line yields more bytes than that, which the caller refuses.

    A pipe is read asynchronously, so that answers are graded while it delivers the next ones.
    """
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        while line := file.readline(LONGEST + 1):
            yield line
        return
    reader = asyncio.StreamReader(limit=LONGEST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    while line := await _read_line(reader):
        yield line


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    with suppress(ValueError):
        return await reader.readline()
    return b"x" * (LONGEST + 1)  # what the reader has dropped was too long
