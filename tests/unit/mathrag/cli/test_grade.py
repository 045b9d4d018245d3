"""`mathrag grade`: answers of a file, without a service."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mathrag.cli.grade import LONGEST
from mathrag.cli.main import app
from mathrag.cli.output import Exit
from shared.processes import grading_process
from shared.processes.grading_pool import GradingPool


def graded(tmp_path: Path, *lines: object, options: tuple[str, ...] = ("--json",)) -> Result:
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return CliRunner().invoke(app, ["grade", "--from", str(file), "--processes", "2", *options])


@pytest.fixture
def without_children(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_: GradingPool, request: dict[str, Any]) -> dict[str, Any]:
        return grading_process.grade(request)

    monkeypatch.setattr(GradingPool, "ask", ask)


def printed(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_line_gets_its_verdict_in_order_and_says_which_grader_said_what(tmp_path: Path) -> None:
    result = graded(
        tmp_path, {"answer": "2/4", "gold": "1/2"}, "", {"answer": "5", "gold": "5", "id": 7},
        {"answer": None, "gold": "5"}, {"answer": "3", "gold": "5", "golds": ["3"]},
    )  # fmt: skip
    assert result.exit_code == 0
    assert printed(result) == [
        {"line": 1, "correct": True, "verdicts": {"math": True, "strict": False}},
        {"line": 3, "correct": True, "verdicts": {"math": True, "strict": True}},
        {"line": 4, "correct": False, "verdicts": {"math": False, "strict": False}},
        {"line": 5, "correct": True, "verdicts": {"math": True, "strict": True}},
    ]


@pytest.mark.usefixtures("without_children")
def test_any_grader_that_needs_no_model_can_be_named(tmp_path: Path) -> None:
    result = graded(tmp_path, {"answer": "paris", "gold": "Paris"}, options=("--grader", "text", "--json"))
    assert printed(result) == [{"line": 1, "correct": True, "verdicts": {"text": True, "strict": False}}]


@pytest.mark.usefixtures("without_children")
def test_people_read_words_and_a_sum(tmp_path: Path) -> None:
    result = graded(tmp_path, {"answer": "2/4", "gold": "1/2"}, {"answer": "6", "gold": "5"}, options=())
    assert result.stdout.splitlines() == [
        "1\tright; strictly wrong\t'2/4'\t'1/2'", "2\twrong\t'6'\t'5'", "1 of 2 right, 1 wrong, 0 without a verdict",
    ]  # fmt: skip


def test_an_answer_that_takes_too_long_has_no_verdict_and_holds_nobody_up(tmp_path: Path) -> None:
    hangs = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}"
    lines = ({"answer": hangs, "gold": "5"}, {"answer": "6", "gold": "5"})
    first, second = printed(graded(tmp_path, *lines, options=("--json", "--deadline", "0.2")))
    assert (first["correct"], first["failure"]) == (None, "grader_timeout")
    assert second["correct"] is False


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Input data was truncated"),
        ('{"answer": 5, "gold": "5"}', "line 2: Expected `str | null`, got `int` - at `$.answer`"),
        ('{"answer": "5"}', "line 2: Object missing required field `gold`"),
        ('{"answer": "' + "5" * LONGEST + '", "gold": "5"}', f"line 2: the line is longer than {LONGEST} bytes"),
    ],
)
def test_a_line_that_is_no_answer_ends_it_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    result = graded(tmp_path, {"answer": "5", "gold": "5"}, line)
    assert result.exit_code == Exit.INVALID
    assert [each["line"] for each in printed(result)] == [1]
    assert message in result.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [("rubric", "needs the judge model"), ("nosuch", "there is no grader 'nosuch'; there are: math")],
)
def test_a_grader_that_cannot_be_used_here_is_a_usage_error(tmp_path: Path, name: str, message: str) -> None:
    result = graded(tmp_path, options=("--grader", name))
    assert result.exit_code == Exit.USAGE
    assert message in result.stderr


def test_verdicts_come_while_the_pipe_is_open() -> None:
    command = [sys.executable, "-m", "mathrag.cli.main", "grade", "--from", "-", "--json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None
        for answer, right in (("10/2", True), ("6", False)):
            asked.stdin.write(json.dumps({"answer": answer, "gold": "5"}).encode() + b"\n")
            asked.stdin.flush()
            assert json.loads(asked.stdout.readline())["correct"] is right
        asked.stdin.write(b"x" * (LONGEST + 10) + b"\n")
        asked.stdin.close()
        assert asked.wait(60) == Exit.INVALID
