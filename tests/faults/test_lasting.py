"""What is not over at once: frozen and starved holders, rolling restarts, crash loops."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.faults.gates import Session
from tests.faults.processes import SERVICES, judge_worker, resume, until
from tests.faults.real import done
from tests.faults.trial import IN_FLIGHT, JOB, SOONER, Trial
from tests.faults.vocabulary import Subject
from tests.running import Document, RunningStack, ended

ON_DEVICE = """
    SELECT m.name, r.state FROM residencies r JOIN models m ON m.id = ANY(r.models) ORDER BY r.epoch DESC LIMIT 1"""
CRASHES = 4


@pytest.mark.fault("P6")
def test_a_holder_that_wakes_while_the_next_holds_the_device_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    trial.seen.describe(
        "SIGSTOP of the judge worker at 30 % of the judge's calls, with calls in hand; SIGCONT when its claims have "
        "lapsed, another worker has done its work, and the generator is resident"
    )
    log = trial.stack.data_dir / "logs" / "judge.log"
    job = trial.stack.submit("P6", **JOB)
    trial.stack.wait(job, partial(is_judged, trial.whole["judge"] * 0.3))
    with ExitStack() as frozen:
        frozen.enter_context(frozen_with_calls(trial))
        with judge_worker({**trial.stack.addresses(), **SOONER}, tmp_path):
            until("the device has flipped on", lambda: resident(trial.stack) == ("world-generator", "open"))
            assert not ended(trial.stack.get(f"/v1/jobs/{job}"))
            log_size = log.stat().st_size
            frozen.close()
            until("it hands in what it held", lambda: b"stale_result" in log.read_bytes()[log_size:])
            report = trial.ends_whole(job)
    assert 0 < report["calls_lapsed"] <= 2 * IN_FLIGHT
    trial.seen.note("the late replies are discarded (`stale_result`): the token of their claim is gone")


@pytest.mark.fault("T4")
def test_a_starved_worker_loses_its_claims_and_nothing_else(trial: Trial) -> None:
    trial.seen.describe("the judge worker stopped twice until its claims have lapsed, 5 s later at most")
    job = trial.stack.submit("T4", **JOB)
    for share in (0.3, 0.8):
        trial.stack.wait(job, partial(is_judged, trial.whole["judge"] * share))
        stopped = trial.processes.signal(Subject.JUDGE, signal.SIGSTOP)
        try:
            until("its claims have lapsed", lambda: not held_by_judge(trial.stack))
        finally:
            resume(stopped)
    report = trial.ends_whole(job)
    assert report["calls_lapsed"] > 0
    trial.seen.note("claims that were not renewed lapse, their calls run again, one by one, and no call is poisoned")


@pytest.mark.fault("P11")
def test_a_rolling_restart_of_all_services_stops_no_job(trial: Trial) -> None:
    trial.seen.describe("SIGTERM of guard, retriever, judge, generator, orchestrator and Redis, one after the other")
    jobs: list[str] = []
    for name in ("guard", "retriever", "judge", "generator", "orchestrator", "redis"):
        if not jobs or ended(trial.stack.get(f"/v1/jobs/{jobs[-1]}")):
            jobs.append(trial.stack.submit("P11", **JOB))
            trial.stack.wait(jobs[-1], lambda now: done(now, "judge") > 0)
        trial.stack.restart(name)
    for job in jobs:
        trial.ends_whole(job)


@pytest.mark.fault("P12")
@pytest.mark.parametrize("subject", [Subject.GENERATOR, Subject.GUARD], ids=str)
def test_a_service_that_crashes_over_and_over_ends_the_job_when_it_stays_up(trial: Trial, subject: Subject) -> None:
    trial.seen.describe(f"SIGKILL of the service {CRASHES} times, each time as soon as it is back")
    job = trial.stack.submit("P12", **JOB)
    trial.stack.wait(job, partial(is_judged, trial.whole["judge"] * 0.3))
    before = trial.stack.seen(SERVICES[subject]).restarts
    pauses = [crash(trial, subject) for _ in range(CRASHES)]
    assert trial.stack.seen(SERVICES[subject]).restarts == before + CRASHES
    trial.seen.figure("longest pause of the supervisor, s", max(pauses))
    assert not ended(trial.stack.get(f"/v1/jobs/{job}"))
    trial.ends_whole(job)


def crash(trial: Trial, subject: Subject) -> float:
    old, died = trial.stack.seen(SERVICES[subject]).pid, time.monotonic()
    trial.processes.kill(subject)
    until("another one is started", lambda: trial.stack.seen(SERVICES[subject]).pid not in (old, None))
    return time.monotonic() - died


def is_judged(goal: float, document: Document) -> bool:
    return done(document, "judge") >= goal


def resident(stack: RunningStack) -> tuple[str, str]:
    with Session(stack) as session:
        found = session.rows(ON_DEVICE)
        return (found[0][0], found[0][1]) if found else ("", "")


@contextmanager
def frozen_with_calls(trial: Trial) -> Iterator[None]:
    stopped: list[psutil.Process] = []

    def stops_with_calls() -> int:
        resume(stopped)
        stopped[:] = trial.processes.signal(Subject.JUDGE, signal.SIGSTOP)
        return held_by_judge(trial.stack)

    try:
        until("it is stopped with calls in hand", stops_with_calls, 0.01)
        yield
    finally:
        resume(stopped)


def held_by_judge(stack: RunningStack) -> int:
    with Session(stack) as session:
        found: int = session.rows("SELECT count(*) FROM queue WHERE lane = 'judge' AND token IS NOT NULL")[0][0]
        return found
