"""`mathrag dataset generate`: what is asked, how the job is waited for, and what the dataset is said to be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.unit.commands import JOB, Server, job, mathrag, says

MADE: dict[str, Any] = {
    "name": "t", "state": "ready", "job": JOB["id"], "candidates": 20, "items": 9,
    "left_out": {"nothing_to_ask": 2, "answer_in_question": 5}, "failed": 1, "spare": 0, "guessable": 3,
    "found_elsewhere": 0, "overlap": 0.414,
}  # fmt: skip
WRITING = {**MADE, "state": "writing", "items": 0, "left_out": {}, "failed": 0, "guessable": 0, "overlap": None}
GENERATE = ("dataset", "generate", "t", "--corpus", "docs", "--size", "10")


def service(ended: str, answers: list[dict[str, Any]]) -> Callable[[httpx2.Request], httpx2.Response]:
    """Answers requests for the dataset in turn; its job has ended in this state."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(202, json=answers.pop(0))
        return httpx2.Response(200, json=job(ended, 2))

    return answer


def test_the_command_waits_for_the_job_and_then_stores_the_dataset(server: Server) -> None:
    requests = server(service("completed", [WRITING, MADE]))
    ended = mathrag(*GENERATE)
    assert ended.exit_code == 0, ended.stderr
    assert "writing 20 questions" in ended.stdout
    assert ended.stdout.splitlines()[-8:] == [
        "dataset t: 9 of 20 questions",
        "  guessable       3, which the judge model answered without a document",
        "  failed          1, whose passages were too long for the model, or whose calls failed",
        "  left out        2 nothing to ask, 5 answer in question",
        "  overlap         41% of a question's words also occur in its quotation, on average",
        "  fewer than 10: use another name and more --candidates; the questions written so far are reused",
        "  next: mathrag dataset preview t",
        "  next: mathrag job submit --name N --dataset t --corpus docs --pipeline hybrid --wait",
    ]
    posted = [request for request in requests if request.method == "POST"]
    assert [request.url.path for request in posted] == ["/v1/datasets/generate"] * 2
    assert posted[0].content == posted[1].content


def test_a_dataset_that_was_stored_before_is_shown_at_once(server: Server) -> None:
    requests = server(says(MADE))
    ended = mathrag(*GENERATE, "--json")
    assert (ended.exit_code, msgspec.json.decode(ended.stdout), len(requests)) == (0, MADE, 1)


def test_a_job_that_does_not_complete_is_not_started_again(server: Server) -> None:
    requests = server(service("cancelled", [WRITING]))
    ended = mathrag(*GENERATE)
    assert ended.exit_code != 0
    assert "did not complete (cancelled)" in ended.stderr
    assert "run the same command again: it keeps the questions that are done" in ended.stderr
    assert sum(request.method == "POST" for request in requests) == 1


def test_options_are_sent(server: Server, tmp_path: Path) -> None:
    styles = tmp_path / "styles.txt"
    styles.write_text("Ask in a few keywords.\n\n Ask as a child. \n")
    requests = server(says(MADE))
    options = ("--hops", "2,1", "--seed", "7", "--candidates", "40", "--styles", str(styles), "--grader", "text")
    assert mathrag(*GENERATE, *options, "--judge", "large").exit_code == 0
    assert msgspec.json.decode(requests[0].content) == {
        "name": "t", "corpus": "docs", "size": 10, "candidates": 40, "hops": [1, 2], "seed": 7, "grader": "text",
        "styles": ["Ask in a few keywords.", "Ask as a child."], "models": {"judge": "large"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hops", "3"), "--hops 3: the number of passages must be 1 or 2"),
        (("--styles", "none.txt"), "--styles none.txt cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_is_sent(
    server: Server, options: tuple[str, ...], message: str
) -> None:
    requests = server(says(MADE))
    ended = mathrag(*GENERATE, *options)
    assert (ended.exit_code, message in ended.stderr, requests) == (2, True, []), ended.stderr
