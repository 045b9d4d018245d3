"""Outages of seconds: what was stopped goes on, and nothing waits for a multiple of what the outage took."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from tests.faults.gates import Session
from tests.faults.processes import SERVICES, resume, until
from tests.faults.real import done
from tests.faults.trial import JOB, Trial
from tests.faults.vocabulary import Subject
from tests.running import RunningStack

FROZEN_S = 8.0
STOPPED_S = 30.0
# From the last reply of the first stage to the first call of the second.
BETWEEN = """
    SELECT extract(epoch FROM min(a.started_at) FILTER (WHERE c.role = 'generate')
        - max(a.created_at) FILTER (WHERE c.role = 'judge'))
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id JOIN attempts a ON a.call_id = c.id AND a.accepted
    WHERE CAST(j.public_id AS text) = $1"""
SUBJECTS = (Subject.ORCHESTRATOR, Subject.GUARD, Subject.REDIS, Subject.JUDGE)


@contextmanager
def stop_processes(trial: Trial, *subjects: Subject) -> Iterator[None]:
    processes = [each for subject in subjects for each in trial.processes.signal(subject, signal.SIGSTOP)]
    try:
        yield
    finally:
        resume(processes)


def outlasts(trial: Trial, name: str, seconds: float, *subjects: Subject) -> None:
    job = trial.stack.submit(name, **JOB)
    trial.stack.wait(job, lambda now: done(now, "judge") >= trial.whole["judge"] // 2)
    with stop_processes(trial, *subjects):
        time.sleep(seconds)
    resumed = time.monotonic()
    trial.stack.wait(job, lambda now: done(now, "generate") > 0)
    trial.seen.figure("seconds from the end of the outage to the first answer", time.monotonic() - resumed)
    trial.ends_whole(job)
    with Session(trial.stack) as session:
        trial.seen.figure("seconds from the drain to the next stage", session.rows(BETWEEN, job)[0][0])


@pytest.mark.fault("D8")
def test_a_frozen_database_costs_what_it_was_frozen_for(trial: Trial) -> None:
    trial.seen.describe(f"SIGSTOP of PostgreSQL for {FROZEN_S:.0f} s at half of the judge's calls")
    outlasts(trial, "D8", FROZEN_S, Subject.POSTGRES)


@pytest.mark.fault("D8")
def test_readiness_tells_that_no_scheduler_has_looked(trial: Trial) -> None:
    trial.seen.describe("SIGSTOP of PostgreSQL until `/readyz` says that the scheduler has not looked")
    with stop_processes(trial, Subject.POSTGRES):
        until("the scheduler is missed", lambda: "s ago" in scheduler(trial.stack), 0.5)
    until("the scheduler looks again", lambda: scheduler(trial.stack) == "", 0.5)
    trial.seen.note("`/readyz` is not ready, and says how long ago the scheduler has looked; afterwards it is again")


@pytest.mark.fault("P13")
@pytest.mark.parametrize("subjects", [SUBJECTS[:2], SUBJECTS[2:], SUBJECTS], ids=lambda found: "+".join(found))
def test_stopped_processes_cost_what_they_were_stopped_for(trial: Trial, subjects: tuple[Subject, ...]) -> None:
    trial.seen.describe(f"SIGSTOP for {STOPPED_S:.0f} s at half of the judge's calls: {', '.join(subjects)}")
    outlasts(trial, "P13", STOPPED_S, *subjects)


@pytest.mark.fault("P16")
@pytest.mark.parametrize("subject", [Subject.ORCHESTRATOR, Subject.JUDGE, Subject.POSTGRES], ids=str)
def test_a_process_that_hangs_is_restarted(trial: Trial, subject: Subject) -> None:
    trial.seen.describe("SIGSTOP of orchestrator, judge worker or PostgreSQL at half of the judge's calls, without end")
    job = trial.stack.submit("P16", **JOB)
    trial.stack.wait(job, lambda now: done(now, "judge") >= trial.whole["judge"] // 2)
    before, began = trial.stack.seen(SERVICES[subject]).restarts, time.monotonic()
    with stop_processes(trial, subject):
        until("the supervisor has ended it", lambda: trial.stack.seen(SERVICES[subject]).restarts > before, 0.5)
    trial.seen.figure("seconds until the supervisor has ended it", time.monotonic() - began)
    trial.ends_whole(job)


def scheduler(stack: RunningStack) -> str:
    try:
        found = httpx2.get(f"{stack.url}/readyz", timeout=30, trust_env=False).json()["checks"]
    except httpx2.TransportError:
        return "-"
    return next(str(check["detail"]) for check in found if check["name"] == "scheduler")
