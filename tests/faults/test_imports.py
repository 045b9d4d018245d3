"""kill -9 between an upload of another system's answers and their grading: nothing of it is lost or graded twice."""

import json
import secrets
from typing import Any

import pytest

from tests.faults.gates import Session, Write, gate
from tests.faults.processes import until
from tests.faults.trial import Trial
from tests.faults.vocabulary import Subject

GRADES = Write("attempts", "INSERT", "NEW.epoch IS NULL AND NEW.worker LIKE 'judge@%'")
REPEATS = 3
MADE = """
    WITH made AS (
        SELECT DISTINCT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
        WHERE j.public_id = CAST($1 AS uuid))
    SELECT (SELECT count(*) FROM made) AS calls, count(*) AS replies, count(DISTINCT call_id) AS answered
    FROM attempts WHERE accepted AND call_id IN (SELECT call_id FROM made)"""


@pytest.mark.fault("P2")
def test_grading_of_imported_answers_goes_on_after_a_kill_and_each_pair_is_graded_once(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of judge worker and orchestrator while a gate holds the first grades of an import")
    items: int = trial.stack.get("/v1/datasets/world")["items"]
    with gate(trial.stack, GRADES) as held:
        job = import_answers(trial, items)
        held.wait_until_reached()
        trial.processes.kill(Subject.JUDGE)
        trial.processes.kill(Subject.ORCHESTRATOR)
        held.cut_off()
        until("nothing waits any more", lambda: not held.list_waiting())
        assert count_calls(trial, job)["replies"] == 0
    trial.ends_whole(job)
    assert trial.stack.get(f"/v1/jobs/{job}")["request_counts"]["completed"] == REPEATS * items
    assert count_calls(trial, job) == {"calls": 2 * items, "replies": 2 * items, "answered": 2 * items}
    trial.seen.note("the answers are stored with their job: grading goes on, and equal pairs are graded once")


def import_answers(trial: Trial, items: int) -> str:
    base = 1_000_000 * (1 + secrets.randbelow(1000))
    lines = [
        {"index": index, "repeat": repeat, "answer": str(base + 2 * index + repeat // 2)}
        for repeat in range(REPEATS)
        for index in range(items)
    ]
    reply = trial.stack.api.post(
        "/v1/jobs/import",
        params={"name": f"imported-{base}", "dataset": "world"},
        content="".join(json.dumps(line) + "\n" for line in lines),
    )
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def count_calls(trial: Trial, job: str) -> dict[str, Any]:
    with Session(trial.stack) as session:
        return dict(session.rows(MADE, job)[0])
