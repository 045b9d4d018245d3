"""Faults of control: cancels in every state, storms of them, deletes, and jobs that come in between."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from tests.faults.gates import Session
from tests.faults.real import done
from tests.faults.recording import Seen
from tests.faults.trial import JOB, Trial
from tests.running import Document, RunningStack, ended

Until = Callable[[Document], bool]
LATEST = """
    SELECT max(a.started_at) FROM jobs j JOIN samples s ON s.job_id = j.id
    JOIN steps t ON t.sample_id = s.id AND t.created JOIN attempts a ON a.call_id = t.call_id
    JOIN calls c ON c.id = a.call_id AND c.role IN ('judge', 'generate')
    WHERE CAST(j.public_id AS text) = $1"""
LOADS = "SELECT COALESCE(sum(jsonb_array_length(servers)), 0) FROM residencies"
STATES: dict[str, Until] = {
    "preparing": lambda now: now["state"] == "preparing",
    "judging": lambda now: done(now, "judge") > 20,
    "generating": lambda now: done(now, "generate") > 20,
}


@pytest.mark.fault("C1")
@pytest.mark.parametrize("state", STATES)
def test_a_cancel_ends_a_job_wherever_it_is(trial: Trial, state: str) -> None:
    trial.seen.describe("POST /cancel while the job prepares, judges, generates or is paused, and after each end")
    job = trial.stack.submit(f"C1-{state}", **JOB)
    trial.stack.wait(job, STATES[state])
    assert command(trial.stack, job, "cancel") == 202
    document = wait_until_cancelled(trial.stack, job)
    assert late(trial.stack, job, document) <= 0
    assert command(trial.stack, job, "cancel") == 202
    assert trial.stack.get(f"/v1/jobs/{job}")["ended_at"] == document["ended_at"]


@pytest.mark.fault("C1")
def test_a_paused_job_is_cancelled_and_an_ended_one_is_not(trial: Trial) -> None:
    paused, whole = (trial.stack.submit(f"C1-{name}", **JOB) for name in ("paused", "whole"))
    trial.stack.wait(paused, lambda now: done(now, "judge") > 0)
    assert command(trial.stack, paused, "pause") == 202
    assert command(trial.stack, paused, "cancel") == 202
    wait_until_cancelled(trial.stack, paused)
    trial.ends_whole(whole)
    assert command(trial.stack, whole, "cancel") == 409
    trial.stack.assert_whole(whole)
    trial.seen.note("cancelled is final, a second cancel has no effect, and a job that ended otherwise answers 409")


@pytest.mark.fault("C2")
def test_a_storm_of_cancels_harms_no_other_job(scripted: RunningStack, seen: Seen) -> None:
    jobs, times = 20, 5
    seen.describe(f"{jobs} jobs with the same calls, all but one of them cancelled {times} times at once")
    names = [scripted.submit(f"C2-{number}") for number in range(jobs)]
    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(lambda job: command(scripted, job, "cancel"), names[1:] * times))
    assert answers <= {202, 409}
    for job in names[1:]:
        assert scripted.wait(job, ended)["state"] in ("cancelled", "completed")
        assert scripted.get(f"/v1/jobs/{job}/audit")["violations"] == []
    scripted.assert_whole(names[0])
    seen.note("the job that is not cancelled completes; each answer is 202, or 409 if the job ended first")


@pytest.mark.fault("C3")
def test_what_a_running_job_needs_is_not_deleted(trial: Trial) -> None:
    trial.seen.describe("DELETE of the running job, its dataset and its corpus; purge of everything that has ended")
    job = trial.stack.submit("C3", **JOB)
    trial.stack.wait(job, lambda now: done(now, "judge") > 0)
    for path in (f"jobs/{job}", "datasets/world", "corpora/world"):
        assert trial.stack.api.delete(f"/v1/{path}").status_code == 405
    assert not ended(trial.stack.get(f"/v1/jobs/{job}"))
    trial.ends_whole(job)
    trial.seen.note("405: only `mathrag purge` deletes stored data, and it skips jobs that have not ended")


@pytest.mark.fault("C4")
def test_an_urgent_job_overtakes_in_the_middle_of_a_drain(trial: Trial) -> None:
    trial.seen.describe("a job with rank 1 submitted after a third of the judge's calls of a job with rank 100")
    slow = trial.stack.submit("C4-slow", **JOB, repeats=3)
    trial.stack.wait(slow, lambda now: done(now, "judge") >= trial.whole["judge"] // 3)
    urgent = trial.stack.submit("C4-urgent", rank=1, **JOB)
    report = trial.ends_whole(urgent)
    trial.ends_whole(slow)
    ends = [datetime.fromisoformat(trial.stack.get(f"/v1/jobs/{job}")["ended_at"]) for job in (urgent, slow)]
    assert ends[0] < ends[1]
    assert report["model_loads"] <= 3
    trial.seen.note("the urgent job ends first; both jobs are drained together")


@pytest.mark.fault("C5")
def test_two_jobs_with_different_judges_share_the_generator(scripted: RunningStack, seen: Seen) -> None:
    seen.describe("two jobs with different judges submitted together, on a device with room for one model")
    with Session(scripted) as session:
        before = session.rows(LOADS)[0][0]
        jobs = [scripted.submit(f"C5-{judge}", models={"judge": judge}, **JOB) for judge in ("judge-a", "judge-b")]
        for job in jobs:
            scripted.assert_whole(job)
        loads = session.rows(LOADS)[0][0] - before
    seen.figure("loads", loads)
    assert loads <= 3 + 1
    seen.note("the judges are loaded one after the other, then the generator once for both jobs")


def command(stack: RunningStack, job: str, what: str) -> int:
    return stack.api.post(f"/v1/jobs/{job}/{what}").status_code


def wait_until_cancelled(stack: RunningStack, job: str) -> Document:
    document = stack.wait(job, ended)
    counts = document["request_counts"]
    assert document["state"] == "cancelled"
    assert counts["completed"] + counts["failed"] + counts["cancelled"] == counts["total"]
    assert stack.get(f"/v1/jobs/{job}/audit")["violations"] == []
    return document


def late(stack: RunningStack, job: str, document: Document) -> float:
    with Session(stack) as session:
        latest = session.rows(LATEST, job)[0][0]
    return (latest - datetime.fromisoformat(document["ended_at"])).total_seconds() if latest else 0.0
