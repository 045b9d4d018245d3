"""`mathrag grade`: grade the answers in a file, without a running stack."""

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec
import typer

from mathrag.cli.output import AsJson, report_errors
from mathrag.client.errors import Failed
from shared.calls import Rules
from shared.processes.grading_pool import DEADLINE_S, GradingPool, Verdict
from shared.rag.grading import get_grader
from shared.replies import Failure, Graded

STDIN = "-"
LONGEST = 1 << 20
"""Largest length of a line in bytes, the same as in an upload."""
EXAMPLE = '{"answer": "0.5", "gold": "\\\\frac{1}{2}"}'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class GradeInput(msgspec.Struct, frozen=True):
    """The known fields of a line; others are ignored."""

    answer: str | None
    """Answer; None counts as wrong."""
    gold: str
    golds: tuple[str, ...] = ()
    """Further gold answers."""
    choices: tuple[str, ...] = ()
    """Texts of the choices A, B, C and so on, for the grader `choice`."""


class AnswerLine(NamedTuple):
    """An answer and the number of its line, which errors and results name."""

    number: int
    """Number of the line, from 1."""
    answer: GradeInput


_ANSWER = msgspec.json.Decoder(GradeInput)


@contextmanager
def open_source(source: str) -> Iterator[BinaryIO]:
    """Open the file `source`, or standard input for "-".

    Raises:
        OSError: the file cannot be read.
    """
    if source == STDIN:
        yield sys.stdin.buffer
        return
    with Path(source).open("rb") as file:
        yield file


async def read_answers(file: BinaryIO, source: str) -> AsyncIterator[AnswerLine]:
    """Yield the answers in `file`, whose name is `source`; skip blank lines.

    Raises:
        Failed: a line is too long or has no answer; the message names the file and the line.
    """
    name = "standard input" if source == STDIN else source
    number = 0
    async for line in _read_lines(file):
        number += 1
        if len(line) > LONGEST:
            raise Failed("invalid_line", f"{name}, line {number}: the line is longer than {LONGEST} bytes")
        if line.strip():
            try:
                yield AnswerLine(number, _ANSWER.decode(line.removeprefix(_BYTE_ORDER_MARK)))
            except msgspec.MsgspecError as error:
                hint = f"write one object per line, such as {EXAMPLE}"
                raise Failed("invalid_line", f"{name}, line {number}: {error}", hint) from error


async def _read_lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the lines; a line over `LONGEST` bytes yields a longer one, which the caller rejects.

    A pipe is read asynchronously, so that answers are graded while the next ones arrive.
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
    return b"x" * (LONGEST + 1)  # the reader dropped a line that is too long


AHEAD = 16
"""Number of answers that are read ahead of the next printed one, for each process."""
WORDS = {True: "right", False: "wrong", None: "no verdict"}

From = Annotated[
    str, typer.Option("--from", metavar="FILE", help='JSON lines with "answer" and "gold"; - reads standard input.')
]
Name = Annotated[str, typer.Option("--grader", help="Grader of the answers, such as math, exact, text or choice.")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="Number of grading processes.")]
Deadline = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Maximum time for grading one answer.")]


class GradedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Verdict on one line, in the form of --json."""

    line: int
    correct: bool | None
    verdicts: dict[str, bool | None]
    """Verdicts by grader; the strict grader compares texts."""
    score: float | None = None
    failure: str | None = None
    """Reason for a missing verdict, such as grader_timeout or unparsed."""
    detail: str | None = None


def grade(
    source: From,
    grader: Name = "math",
    processes: Processes = min(4, os.cpu_count() or 1),
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Grade the answers in a file, without a running stack; --json prints one object per line, in file order."""
    with report_errors(as_json=as_json):
        try:
            found = get_grader(grader)
        except LookupError as error:
            raise Failed("usage", str(error)) from error
        if found.mark is None:
            hint = "submit a job, or choose another grader with --grader"
            raise Failed("usage", f"--grader {grader} needs the judge model, which only jobs can call", hint)
        with open_source(source) as file:
            lines = read_answers(file, source)
            asyncio.run(_print(lines, grader, GradingPool(processes, deadline_s=deadline), as_json=as_json))


async def _print(lines: AsyncIterator[AnswerLine], name: str, pool: GradingPool, *, as_json: bool) -> None:
    counted: Counter[bool | None] = Counter()
    async with pool:
        async for line, reply in _grade_in_order(lines, name, pool):
            if isinstance(reply, Failure):
                result = GradedLine(
                    line=line.number, correct=None, verdicts={}, failure=reply.kind.value, detail=reply.detail
                )
            elif isinstance(reply, Graded):
                verdicts = {"math": reply.math_verify, "strict": reply.strict}
                result = GradedLine(line=line.number, correct=reply.math_verify, verdicts=verdicts)
            else:
                verdicts = {name: reply.correct, "strict": reply.strict}
                result = GradedLine(line=line.number, correct=reply.correct, verdicts=verdicts, score=reply.score)
            counted[result.correct] += 1
            typer.echo(msgspec.json.encode(result).decode() if as_json else _describe(line, result))
    if not as_json:
        total = sum(counted.values())
        typer.echo(f"{counted[True]} of {total} right, {counted[False]} wrong, {counted[None]} without a verdict")


async def _grade_in_order(
    lines: AsyncIterator[AnswerLine], name: str, pool: GradingPool
) -> AsyncIterator[tuple[AnswerLine, Verdict | Failure]]:
    """Yield verdicts in the order of the lines; later lines are read and graded at the same time."""
    queue: asyncio.Queue[tuple[AnswerLine, asyncio.Task[Verdict | Failure]] | None] = asyncio.Queue(AHEAD * pool.size)
    started: set[asyncio.Task[Any]] = set()

    async def read() -> None:
        try:
            async for line in lines:
                rules = Rules(grader=name, golds=line.answer.golds, choices=line.answer.choices)
                task = asyncio.create_task(pool.grade(line.answer.answer, line.answer.gold, rules))
                started.add(task)
                task.add_done_callback(started.discard)
                await queue.put((line, task))
        finally:
            await queue.put(None)

    reading = asyncio.create_task(read())
    try:
        while (found := await queue.get()) is not None:
            line, task = found
            yield line, await task
        await reading
    finally:
        for each in (reading, *started):
            each.cancel()
        await asyncio.gather(reading, *started, return_exceptions=True)


def _describe(line: AnswerLine, result: GradedLine) -> str:
    """Return the verdict as text; the strict verdict is added only if it differs."""
    strict = result.verdicts.get("strict")
    differs = "" if strict in (None, result.correct) else f"; strictly {WORDS[strict]}"
    why = f" ({result.failure}: {result.detail})" if result.failure else differs
    return f"{line.number}\t{WORDS[result.correct]}{why}\t{line.answer.answer!r}\t{line.answer.gold!r}"
