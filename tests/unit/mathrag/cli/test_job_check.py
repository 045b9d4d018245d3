"""`mathrag job check`: limits of figures for CI pipelines, and what is printed of them."""

from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from tests.unit.commands import JOB, Server, job, mathrag, says

REPORT = make_example("Report")
COMPARISON = make_example("Comparison")
DONE = job("completed", 2)
AGAINST = ("--baseline", "dense", "--no-worse")


def serving(report: Any = REPORT, found: Any = DONE, pair: Any = None) -> Any:
    """A server with one job and its baseline; `pair` changes fields of their comparison."""
    compared = {**COMPARISON, "pairs": [{**COMPARISON["pairs"][0], **(pair or {})}]}

    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        value = compared if path == "/v1/comparison" else report if path.endswith("/report") else found
        return says(value)(request)

    return answer


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (
            ("--min", "accuracy=0.61", "--max", "failures=0", "--min", "answer@5=0.5", "--min", "nDCG@10=0.47"),
            Exit.DONE,
        ),
        (("--min", "accuracy=0.62"), Exit.FINDING),
        (("--min", "accuracy=0.61", "--confident"), Exit.FINDING),
        (("--min", "accuracy=0.567", "--confident"), Exit.DONE),
        (("--max", "accuracy=0.62"), Exit.DONE),
        (("--max", "accuracy=0.62", "--confident"), Exit.FINDING),
        (("--max", "truncated=1"), Exit.FINDING),
        (("--max", "truncated=2", "--confident", "--max", "model_loads=2", "--max", "cost=0.1"), Exit.DONE),
        (("--min", "accuracy=0.61", "--max", "truncated=1"), Exit.FINDING),
        ((*AGAINST, "0.016"), Exit.DONE),
        ((*AGAINST, "0.0159"), Exit.FINDING),
        ((*AGAINST, "0.02", "--min", "accuracy=0.7"), Exit.FINDING),
    ],
)
def test_the_exit_code_is_1_if_a_condition_does_not_hold(server: Server, options: tuple[str, ...], code: int) -> None:
    server(serving())
    ended = mathrag("job", "check", "first", *options)
    assert ended.exit_code == code, ended.output
    assert ended.stdout.splitlines()[-1].startswith("check passed" if code == Exit.DONE else "check failed: ")


def test_each_condition_is_a_line_with_value_interval_and_limit(server: Server) -> None:
    requests = server(serving({**REPORT, "failures": {"timeout": 2}, "grading_failures": {"judge": 1}}))
    ended = mathrag("job", "check", "first", "--min", "accuracy=0.6", "--max", "failures=0", *AGAINST, "0.01")
    head, accuracy, failures, difference, result = ended.stdout.splitlines()
    assert head.split() == ["RESULT", "VALUE", "95", "%", "INTERVAL", "LIMIT", "CONDITION"]
    assert accuracy.split() == ["ok", "0.61", "0.567", "to", "0.652", "0.6", "accuracy", "at", "least"]
    assert failures.split() == ["failed", "3", "-", "0", "failures", "at", "most"]
    words = "accuracy minus that of dense on 500 questions, lower end of the interval at least"
    assert difference.split() == ["failed", "0.008", "-0.016", "to", "0.032", "-0.01", *words.split()]
    assert result == f"check failed: failures at most 0, but it is 3; {words} -0.01, but it is -0.016"
    assert requests[-1].url.params.multi_items() == [("job", JOB["id"]), ("baseline", JOB["id"])]


def test_json_has_the_conditions_and_the_notes_once(server: Server) -> None:
    server(serving({**REPORT, "notes": ["3 failed samples are left out of the accuracy"]}))
    ended = mathrag("job", "check", "first", "--min", "accuracy=0.7", "--json")
    assert msgspec.json.decode(ended.stdout) == {
        "job": "first", "id": JOB["id"], "holds": False, "reason": None,
        "conditions": [{
            "condition": "accuracy at least", "holds": False, "tested": 0.61, "value": 0.61, "low": 0.567,
            "high": 0.652, "limit": 0.7,
        }],
        "notes": ["3 failed samples are left out of the accuracy"],
    }  # fmt: skip
    assert ended.exit_code == Exit.FINDING


def test_nothing_measured_is_not_enough(server: Server) -> None:
    nothing = {**REPORT["accuracy"], "value": None, "low": 0.0, "high": 1.0}
    server(serving({**REPORT, "accuracy": nothing}, pair={"difference": None, "items": 0}))
    ended = mathrag("job", "check", "first", "--min", "accuracy=0", *AGAINST, "1")
    assert ended.exit_code == Exit.FINDING
    assert ended.stdout.count("but it is not measured") == 2


def test_a_job_that_failed_fails_the_check_with_its_reason(server: Server) -> None:
    server(serving(found={**job("failed"), "reason": "Traceback\nno memory"}))
    ended = mathrag("job", "check", "first", "--min", "accuracy=0")
    assert (ended.exit_code, ended.stdout) == (
        Exit.FINDING,
        "check failed: job first did not complete (failed): no memory\n",
    )


def test_a_job_that_runs_is_refused_or_waited_for(server: Server) -> None:
    server(serving(found=job("running")))
    ended = mathrag("job", "check", "first", "--min", "accuracy=0")
    assert ended.exit_code == Exit.CONFLICT
    assert "job first is running, so its figures are not final" in ended.stderr
    server(serving())
    assert mathrag("job", "check", "first", "--min", "accuracy=0", "--wait", "--json").exit_code == Exit.DONE


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ("--min", "acuracy=0.8"),
            Exit.INVALID,
            "its figures: accuracy, strict, answer@5, faithfulness, nDCG@10, Recall@context",
        ),
        (("--min", "acuracy=0.8"), Exit.INVALID, "did you mean 'accuracy'?"),
        (("--max", "score=0.8"), Exit.INVALID, "no figure 'score'"),
        (("--min", "accuracy=high"), Exit.USAGE, "'high' is not a number"),
        (("--min", "accuracy"), Exit.USAGE, "KEY=VALUE"),
        (("--baseline", "dense"), Exit.USAGE, "must be given together"),
        (("--no-worse", "0.1"), Exit.USAGE, "must be given together"),
        ((*AGAINST, "2"), Exit.USAGE, "no-worse"),
        (("--min", "accuracy=nan"), Exit.USAGE, "'nan' is not a number"),
        (("--min", "accuracy=0", "--measure", "score"), Exit.USAGE, "--baseline"),
        ((), Exit.USAGE, "no limit is given"),
    ],
)
def test_a_condition_that_cannot_be_tested_is_an_error_and_no_finding(
    server: Server, options: tuple[str, ...], code: int, said: str
) -> None:
    server(serving())
    ended = mathrag("job", "check", "first", *options)
    assert ended.exit_code == code, ended.output
    assert said in ended.stderr
