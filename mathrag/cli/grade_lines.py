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
"""Bytes of a line, as in an upload."""
EXAMPLE = '{"answer": "0.5", "gold": "\\\\frac{1}{2}"}'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Answer(msgspec.Struct, frozen=True):
    """What a line holds; other fields are ignored."""

    answer: str | None
    """None: there is none, which is wrong."""
    gold: str
    golds: tuple[str, ...] = ()
    """Further gold answers."""
    choices: tuple[str, ...] = ()
    """Texts of the choices A, B, C ..., for the grader `choice`."""


class Line(NamedTuple):
    """An answer and where it stands."""

    number: int
    """From 1."""
    answer: Answer


_ANSWER = msgspec.json.Decoder(Answer)


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """The file called `source`, or standard input for "-".

    Raises:
        OSError: it cannot be read.
    """
    if source == STDIN:
        yield sys.stdin.buffer
        return
    with Path(source).open("rb") as file:
        yield file


async def answers(file: BinaryIO, source: str) -> AsyncIterator[Line]:
    """The answers in `file`, which is called `source`; blank lines are left out.

    Raises:
        Failed: a line is too long or holds no answer; file and number are named.
    """
    name = "standard input" if source == STDIN else source
    number = 0
    async for line in _lines(file):
        number += 1
        if len(line) > LONGEST:
            raise Failed("invalid_line", f"{name}, line {number}: longer than {LONGEST} bytes")
        if line.strip():
            yield Line(number, _read(line.removeprefix(_BYTE_ORDER_MARK), f"{name}, line {number}"))


def _read(line: bytes, where: str) -> Answer:
    try:
        return _ANSWER.decode(line)
    except msgspec.MsgspecError as error:
        raise Failed("invalid_line", f"{where}: {error}", f"one object a line, such as {EXAMPLE}") from error


async def _lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """Lines of at most `LONGEST` bytes; of a longer one more than that. A pipe keeps nobody waiting but its reader."""
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        while line := file.readline(LONGEST + 1):
            yield line
        return
    reader = asyncio.StreamReader(limit=LONGEST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    while line := await _next(reader):
        yield line


async def _next(reader: asyncio.StreamReader) -> bytes:
    with suppress(ValueError):
        return await reader.readline()
    return b"x" * (LONGEST + 1)  # what the reader has dropped was too long
