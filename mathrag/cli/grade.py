"""`mathrag grade`: grade the answers in a file without a service, as a job would grade them."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.grade_lines import AnswerLine, open_source, read_answers
from mathrag.cli.output import AsJson
from mathrag.client.errors import Failed
from shared.calls import Rules
from shared.extras import find_missing_package
from shared.processes.grading_pool import DEADLINE_S, GradingPool, Verdict
from shared.rag.grading import get_grader
from shared.replies import Failure, Graded

AHEAD = 16
"""Answers that are read ahead of the one that is printed next, for each process."""
WORDS = {True: "right", False: "wrong", None: "no verdict"}

From = Annotated[
    str, typer.Option("--from", metavar="FILE", help='JSON lines with "answer" and "gold"; - reads standard input.')
]
Name = Annotated[str, typer.Option("--grader", metavar="NAME", help="Grader, such as math, exact, text or choice.")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="Number of grading processes.")]
Deadline = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Longest time to grade an answer, in seconds.")
]


class GradedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on one line, as --json prints it."""

    line: int
    correct: bool | None
    verdicts: dict[str, bool | None]
    """Verdicts by grader; the strict one compares texts."""
    score: float | None = None
    failure: str | None = None
    """Why there is no verdict: grader_timeout, unparsed, ..."""
    detail: str | None = None


def grade(
    source: From,
    grader: Name = "math",
    processes: Processes = min(4, os.cpu_count() or 1),
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Grade the answers in a file, in its order, without a service; --json prints one object per line."""
    with report_errors(as_json=as_json):
        _check(grader)
        with open_source(source) as file:
            lines = read_answers(file, source)
            asyncio.run(_print(lines, grader, GradingPool(processes, deadline_s=deadline), as_json=as_json))


def _check(name: str) -> None:
    try:
        found = get_grader(name)
    except LookupError as error:
        raise Failed("usage", str(error)) from error
    if found.mark is None:
        hint = "submit a job, or choose another grader with --grader"
        raise Failed("usage", f"grader {name!r} needs the judge model, which only jobs can use", hint)
    if missing := find_missing_package("math_verify"):
        raise missing


async def _print(lines: AsyncIterator[AnswerLine], name: str, pool: GradingPool, *, as_json: bool) -> None:
    counted: Counter[bool | None] = Counter()
    async with pool:
        async for line, reply in _grade_in_order(lines, name, pool):
            result = _make_result(line, name, reply)
            counted[result.correct] += 1
            typer.echo(msgspec.json.encode(result).decode() if as_json else _describe(line, result))
    if not as_json:
        total = sum(counted.values())
        typer.echo(f"{counted[True]} of {total} right, {counted[False]} wrong, {counted[None]} without a verdict")


async def _grade_in_order(
    lines: AsyncIterator[AnswerLine], name: str, pool: GradingPool
) -> AsyncIterator[tuple[AnswerLine, Verdict | Failure]]:
    """Yield verdicts in the order of the lines, while later lines are already read and graded."""
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
        await _cancel(reading, *started)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _make_result(line: AnswerLine, name: str, reply: Verdict | Failure) -> GradedLine:
    if isinstance(reply, Failure):
        return GradedLine(line=line.number, correct=None, verdicts={}, failure=reply.kind.value, detail=reply.detail)
    if isinstance(reply, Graded):
        verdicts = {"math": reply.math_verify, "strict": reply.strict}
        return GradedLine(line=line.number, correct=reply.math_verify, verdicts=verdicts)
    verdicts = {name: reply.correct, "strict": reply.strict}
    return GradedLine(line=line.number, correct=reply.correct, verdicts=verdicts, score=reply.score)


def _describe(line: AnswerLine, result: GradedLine) -> str:
    """Return the verdict for a person; the strict one is added only if it differs."""
    strict = result.verdicts.get("strict")
    differs = "" if strict in (None, result.correct) else f"; strictly {WORDS[strict]}"
    why = f" ({result.failure}: {result.detail})" if result.failure else differs
    return f"{line.number}\t{WORDS[result.correct]}{why}\t{line.answer.answer!r}\t{line.answer.gold!r}"
