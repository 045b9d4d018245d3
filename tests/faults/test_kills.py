"""kill -9 of what matters, in the middle of every stage: the job ends by itself, and its audit is clean."""

from collections.abc import Callable

import pytest
import redis

from shared.settings import Workers
from tests.running import Document, RunningStack, ended

Cost = Callable[[str, object], None]
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""

# Whatever rho is, the judge rates every candidate; and every job computes everything anew.
JOB = {"reuse": "none", "params": {"gate": {"tau": 1.0}}}
VICTIMS = {"judge": ("judge", "guard", "orchestrator"), "generate": ("generator", "guard", "orchestrator")}
CASES = [
    (stage, victim, percent) for stage, victims in VICTIMS.items() for victim in victims for percent in (20, 50, 80)
]


@pytest.fixture
def cost(record_property: Cost) -> Cost:
    """Writes a figure into the test report (`--junitxml`)."""
    return record_property


@pytest.fixture(scope="session")
def calls_by_stage(stack: RunningStack) -> dict[str, int]:
    """How many calls each stage of the job makes when nothing goes wrong."""
    job = stack.submit("undisturbed", **JOB)
    stack.wait(job, ended)
    made: dict[str, int] = stack.get(f"/v1/jobs/{job}/report")["calls_made"]
    return made


@pytest.mark.parametrize(("stage", "victim", "percent"), CASES)
def test_a_killed_process_costs_at_most_what_was_in_flight(
    stack: RunningStack, calls_by_stage: dict[str, int], stage: str, victim: str, percent: int, cost: Cost
) -> None:
    """The job completes without help, nothing is lost or doubled, and few calls ran twice."""
    job = stack.submit(f"{stage}-{percent}-{victim}", **JOB)
    goal = calls_by_stage[stage] * percent // 100
    document = stack.wait(job, lambda document: _done(document, stage) >= goal)
    stack.kill(victim)
    cost("killed after", f"{_done(document, stage)} of {calls_by_stage[stage]} {stage} calls")
    _assert_whole(stack, job, cost)


def test_a_redis_flush_costs_nothing_but_time(stack: RunningStack, calls_by_stage: dict[str, int], cost: Cost) -> None:
    """Ticks and lease are gone; the rows are not."""
    job = stack.submit("flushed", **JOB)
    stack.wait(job, lambda document: _done(document, "judge") >= calls_by_stage["judge"] // 2)
    with redis.Redis.from_url(stack.redis_url()) as client:
        client.flushall()
    _assert_whole(stack, job, cost)


def _assert_whole(stack: RunningStack, job: str, cost: Cost) -> None:
    document = stack.wait(job, ended)
    counts = document["request_counts"]
    assert document["state"] == "completed"
    assert (counts["completed"], counts["failed"]) == (counts["total"], 0), document
    assert stack.get(f"/v1/jobs/{job}/audit")["violations"] == []
    report = stack.get(f"/v1/jobs/{job}/report")
    for figure in ("calls_lapsed", "model_loads", "seconds"):
        cost(figure, report[figure])
    assert report["calls_lapsed"] <= IN_FLIGHT


def _done(document: Document, stage: str) -> int:
    found: int = document["stages"].get(stage, {}).get("done", 0)
    return found
