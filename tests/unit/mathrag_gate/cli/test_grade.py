"""Graded answers: by `mathrag grade`, without a service, and by people with `mathrag label`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import Result

from mathrag.cli.output import Exit
from mathrag_gate.cli.grade import LONGEST
from shared.processes import grading_process
from shared.processes.grading_pool import GradingPool
from tests.unit.commands import Server, mathrag

# `mathrag grade`: answers of a file, without a service.


def graded(tmp_path: Path, *lines: object, options: tuple[str, ...] = ("--json",)) -> Result:
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return mathrag("grade", "--from", str(file), "--processes", "2", *options)


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
    first, second = printed(graded(tmp_path, *lines, options=("--json", "--deadline", "3")))
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
    [("rubric", "needs the judge model"), ("nosuch", "unknown grader 'nosuch'; choose one of math")],
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


# Labels from the command line.

SET = {
    "name": "mine", "what": "documents", "job": "6b0c", "job_name": "gate", "purged": False, "seed": 3, "eligible": 90,
    "tasks": 40, "hash": "9f2c", "instructions": "Rate it.", "scale": [1, 2, 3, 4, 5],
    "labellers": [{"labeller": "ana", "labels": 7, "abstained": 1, "same": 5}],
}  # fmt: skip
TASK = {"number": 2, "item": 1, "repeat": 0, "content": {"problem": "1+1?", "text": "2."}, "system": None}
COEFFICIENT = {"value": 0.614, "low": 0.4, "high": 0.8}
NO_COEFFICIENT = {"value": None, "low": None, "high": None}
HELD = {
    "labeller": None, "compared": 12, "abstained": 0, "same": 9, "kappa": COEFFICIENT,
    "weighted_kappa": {**COEFFICIENT, "low": None}, "confusion": [[0, 3, 0, 0, 0], *[[0] * 5] * 4], "note": None,
}  # fmt: skip
ALPHAS = {"tasks": 12, **dict.fromkeys(("nominal", "ordinal", "interval"), COEFFICIENT), "note": None}
NO_ALPHAS = {"tasks": 0, **dict.fromkeys(("nominal", "ordinal", "interval"), NO_COEFFICIENT), "note": "too few"}
AGREEMENT = {
    "what": "documents", "scale": [1, 2, 3, 4, 5], "words": "They agree.", "tasks": 40, "labelled": 13, "labels": 12,
    "abstentions": 1, "ties": 0, "majority": HELD, "labellers": [{**HELD, "labeller": "ana"}], "people": NO_ALPHAS,
    "with_system": ALPHAS,
    "disagreements": [{"number": 2, "item": 1, "repeat": 0, "label": 1, "system": 2}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/v1/labels/sets": SET,
    "/v1/labels/sets/mine": SET,
    "/v1/labels/sets/mine/next": {"task": TASK, "done": 1, "tasks": 40},
    "/v1/labels/sets/mine/tasks/2/labels": {"value": 4, "abstained": False},
    "/v1/labels/sets/mine/agreement": AGREEMENT,
    "/v1/labels/sets/mine/calibration": {
        "judge": "a-judge",
        "tasks": 12,
        "hash": "77ab",
        "ratings": [{"rating": 1, "tasks": 0, "mean": None, "worth": 1.5}],
    },
}


@pytest.fixture
def asked(server: Server) -> list[httpx2.Request]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.endswith("export"):
            return httpx2.Response(200, text='{"value":4}\n')
        if path == "/v1/labels/sets" and request.method == "GET":
            return httpx2.Response(200, json={"data": [SET], "next_cursor": None})
        return httpx2.Response(200, json=ANSWERS[path])

    return server(answer)


def label(*words: object) -> Result:
    return mathrag("label", *map(str, words))


def test_a_set_is_made_and_says_what_comes_next(asked: list[httpx2.Request]) -> None:
    ended = label("create", "mine", "--job", "gate", "--size", 40, "--seed", 3)
    assert (ended.exit_code, ended.stdout) == (
        0, "label set mine: 40 of 90 documents of gate\n  next: mathrag label next mine\n",
    )  # fmt: skip
    body = {"name": "mine", "job": "gate", "what": "documents", "size": 40, "seed": 3}
    assert json.loads(asked[0].content) == body


def test_the_next_task_is_blind_unless_it_is_asked_otherwise(asked: list[httpx2.Request]) -> None:
    ended = label("next", "mine")
    assert dict(asked[0].url.params) == {}
    assert "task 2 of 40, 1 done: Rate it." in ended.stdout
    assert "next: mathrag label give mine 2 1|2|3|4|5|abstain\n" in ended.stdout
    label("next", "mine", "--open")
    assert asked[-2].url.params["blind"] == "false"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (("4",), {"value": 4, "note": "", "blind": True}),
        (("right", "--note", "why"), {"value": "right", "note": "why", "blind": True}),
        (("abstain", "--open"), {"abstained": True, "note": "", "blind": False}),
    ],
)
def test_a_label_is_sent_as_it_is_typed(asked: list[httpx2.Request], words: tuple[str, ...], body: Any) -> None:
    assert label("give", "mine", 2, *words).exit_code == 0
    assert json.loads(asked[0].content) == body


def test_agreement_is_written_with_intervals_where_there_are_some(asked: list[httpx2.Request]) -> None:
    said = label("agreement", "mine", "--seed", 7).stdout
    assert asked[0].url.params["seed"] == "7"
    for words in (
        "They agree.", "0.61 (0.40 to 0.80)", "the majority  9 of 12", "ana", "labellers and judge", "too few",
        "labelled 13 of 40 tasks: labels 12, abstentions 1, ties 0",
    ):  # fmt: skip
        assert words in said
    assert "    1  0  3  0  0  0\n" in said


def test_labels_go_to_a_file_that_is_not_there_yet(asked: list[httpx2.Request], tmp_path: Path) -> None:
    assert label("export", "mine").stdout == '{"value":4}\n'
    file = tmp_path / "labels.jsonl"
    assert label("export", "mine", "--out", file).exit_code == 0
    assert file.read_text() == '{"value":4}\n'
    assert label("export", "mine", "--out", file).exit_code != 0


def test_the_bare_noun_lists_the_sets(asked: list[httpx2.Request]) -> None:
    assert label().stdout.splitlines()[1].split() == ["mine", "documents", "gate", "40", "7", "1"]
    shown = label("show", "mine").stdout
    assert "ana: 7 labels, 5 as the judge; 1 abstention" in shown


def test_a_calibration_says_what_each_rating_is_worth(asked: list[httpx2.Request]) -> None:
    said = label("calibration", "mine").stdout
    assert "a-judge, by labels of 12 tasks: 77ab" in said
    assert said.splitlines()[2].split() == ["1", "0", "-", "1.50"]
    assert "--set gate.labels=mine" in said
