"""Processes that are killed, stopped, starved or restarted: the job ends by itself, and its audit is clean."""

import asyncio
import json
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from shared.calls import Lane
from shared.lease.policy import FlipState
from shared.queue import Ticker, celery_app
from tests.faults.gates import Session, Write, gate
from tests.faults.processes import SERVICES, judge_worker, resume, until
from tests.faults.real import done, guard_state
from tests.faults.trial import IN_FLIGHT, JOB, SOONER, Trial
from tests.faults.vocabulary import Moment, Subject, at, at_flip_state, at_judged_share, flush, kill, terminate
from tests.running import Document, RunningStack, ended

WORKERS = {"judge": Subject.JUDGE, "generate": Subject.GENERATOR}
STAGES = tuple(WORKERS)
KILLS = [
    pytest.param(stage, percent, marks=pytest.mark.smoke if (stage, percent) == ("judge", 40) else ())
    for percent in (20, 40, 80)
    for stage in STAGES
]
QUEUE, MARK, UNACKED = "mathrag:celery:judge", "mathrag:tick:judge", "mathrag:celery:unacked"
MAIN = {"guard": ("P8", Subject.GUARD), "orchestrator": ("P9", Subject.ORCHESTRATOR)}


@pytest.mark.fault("P1")
# In turn: a worker that is killed again soon is restarted later each time.
@pytest.mark.parametrize(("stage", "percent"), KILLS)
def test_a_killed_worker_costs_at_most_what_was_in_flight(trial: Trial, stage: str, percent: int) -> None:
    trial.seen.describe("SIGKILL of the worker and its children at 20, 40 and 80 % of its stage's calls")
    report = trial.survives("P1", at(Moment(stage, percent / 100), kill(WORKERS[stage])))
    assert report["calls_lapsed"] <= IN_FLIGHT


@pytest.mark.parametrize(
    ("fault", "victim"),
    [pytest.param(fault, victim, marks=pytest.mark.fault(fault), id=name) for name, (fault, victim) in MAIN.items()],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_guard_or_an_orchestrator_killed_in_a_stage_costs_no_more(
    trial: Trial, stage: str, fault: str, victim: Subject
) -> None:
    trial.seen.describe(f"SIGKILL of the {victim} at 30 % of a stage, its residency open")
    report = trial.survives(fault, at(Moment(stage, 0.3), kill(victim)))
    assert report["calls_lapsed"] <= IN_FLIGHT


@pytest.mark.fault("P5")
def test_a_killed_child_costs_at_most_what_was_in_flight(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of the judge worker's forked child at 30 % of the judge's calls")
    before = trial.processes.of(Subject.JUDGE)[0].pid
    report = trial.survives("P5", at(at_judged_share(0.3), kill(Subject.CHILD)))
    assert 0 < report["calls_lapsed"] <= IN_FLIGHT
    assert trial.processes.of(Subject.JUDGE)[0].pid == before
    trial.seen.note("the worker's main process stays alive and forks another child")


@pytest.mark.fault("P7")
@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_is_told_to_stop_gives_back_what_it_holds(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGTERM of the worker at 30 % of its stage's calls")
    report = trial.survives("P7", at(Moment(stage, 0.3), terminate(WORKERS[stage])))
    assert report["calls_lapsed"] == 0
    trial.seen.note("no claim lapses: the calls in flight are given back without a charge")


@pytest.mark.fault("R2")
@pytest.mark.smoke
def test_a_redis_flush_costs_nothing_but_time(trial: Trial) -> None:
    trial.seen.describe("FLUSHALL at 30 % of the judge's calls")
    trial.survives("R2", at(at_judged_share(0.3), flush(Subject.REDIS)))


@pytest.mark.fault("P2")
@pytest.mark.parametrize("stage", STAGES)
def test_a_reply_that_was_not_committed_is_computed_again(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGKILL of the worker while a gate holds the commit of its replies, which is rolled back")
    with gate(trial.stack, replies_of(stage)) as held:
        job = trial.stack.submit("P2", **JOB)
        held.wait_until_reached()
        before = count_answered(trial.stack, stage)
        trial.processes.kill(WORKERS[stage])
        held.cut_off()
        until("nothing waits any more", lambda: not held.list_waiting())
        assert count_answered(trial.stack, stage) == before
    report = trial.ends_whole(job)
    assert 0 < report["calls_lapsed"] <= 2 * IN_FLIGHT  # later workers also wait at the gate
    trial.seen.note("the replies are lost with their worker, their claims lapse, and the calls run again")


@pytest.mark.fault("P3")
@pytest.mark.parametrize("stage", STAGES)
def test_a_reply_that_was_committed_is_not_computed_again(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGKILL of the worker while a gate holds the commit of its replies, which then succeeds")
    with gate(trial.stack, replies_of(stage)) as held:
        job = trial.stack.submit("P3", **JOB)
        held.wait_until_reached()
        trial.processes.kill(WORKERS[stage])
        before = count_answered(trial.stack, stage)
        with redis.Redis.from_url(trial.stack.redis_url()) as client:
            assert client.hlen(UNACKED) > 0
        held.open()
        until("the dead worker's replies are committed", lambda: count_answered(trial.stack, stage) > before)
    report = trial.ends_whole(job)
    assert report["calls_lapsed"] <= 2 * IN_FLIGHT  # later workers also wait at the gate
    trial.seen.note("the tick is left unacknowledged, committed replies count, and the sweeper wakes the samples")


@pytest.mark.fault("P4")
def test_a_tick_that_was_taken_and_never_noted_is_given_again(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of an idle worker that was stopped when Redis handed it a tick")
    with redis.Redis.from_url(trial.stack.redis_url()) as client:
        until("the workers are idle", lambda: not client.exists(MARK))
        noted = client.hlen(UNACKED)  # left by workers that were killed earlier
        until("a stopped worker has taken a tick", lambda: _taken_by_a_stopped_worker(trial, client))
        try:
            assert client.exists(MARK)
            assert client.hlen(UNACKED) <= noted
        finally:
            trial.processes.kill(Subject.JUDGE)
    trial.ends_whole(trial.stack.submit("P4", **JOB))
    trial.seen.note("the mark of the lost tick hides others for at most 30 s; then the sweeper's tick is delivered")


def _taken_by_a_stopped_worker(trial: Trial, client: redis.Redis) -> bool:
    with ExitStack() as repairs:
        repairs.callback(resume, trial.processes.signal(Subject.JUDGE, signal.SIGSTOP))
        asyncio.run(_tick(trial.stack.redis_url()))
        if client.llen(QUEUE) == 0:
            repairs.pop_all()
            return True
    # It was not waiting on Redis just then.
    until("the tick is worked off", lambda: not client.exists(MARK))
    return False


async def _tick(redis_url: str) -> None:
    app = celery_app(redis_url, 60)
    async with AsyncRedis.from_url(redis_url) as client:
        await Ticker(app, client).tick(Lane.JUDGE)
    app.close()


def replies_of(stage: str) -> Write:
    return Write("attempts", "INSERT", f"NEW.epoch IS NOT NULL AND NEW.worker LIKE '{stage}@%'")


def count_answered(stack: RunningStack, stage: str) -> int:
    count = "SELECT count(*) FROM attempts WHERE accepted AND epoch IS NOT NULL AND worker LIKE $1"
    with Session(stack) as session:
        found: int = session.rows(count, f"{stage}@%")[0][0]
        return found


# Lasting faults: frozen and starved holders, rolling restarts, crash loops.

ON_DEVICE = """
    SELECT m.name, r.state FROM residencies r JOIN models m ON m.id = ANY(r.models) ORDER BY r.epoch DESC LIMIT 1"""
CRASHES = 4


@pytest.mark.fault("P6")
def test_a_holder_that_wakes_while_the_next_holds_the_device_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    trial.seen.describe(
        "SIGSTOP of the judge worker at 30 % of the judge's calls, with calls in flight; SIGCONT when its claims have "
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
            until("it hands in its late replies", lambda: b"stale_result" in log.read_bytes()[log_size:])
            report = trial.ends_whole(job)
    assert 0 < report["calls_lapsed"] <= 2 * IN_FLIGHT
    trial.seen.note("the late replies are discarded (`stale_result`): the token of their claim is gone")


@pytest.mark.fault("T4")
def test_a_starved_worker_loses_its_claims_and_nothing_else(trial: Trial) -> None:
    trial.seen.describe("the judge worker stopped twice until its claims have lapsed, for at most 5 s more")
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
    trial.seen.note("unrenewed claims lapse, their calls run again one by one, and no call is poisoned")


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
    trial.seen.describe(f"SIGKILL of the service {CRASHES} times, each time once it has restarted")
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


# Outages of seconds: stopped processes continue, and no wait is a multiple of the outage.

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
    trial.seen.describe("SIGSTOP of PostgreSQL until `/readyz` reports that no scheduler has checked the work")
    with stop_processes(trial, Subject.POSTGRES):
        until("the scheduler is missed", lambda: "has not read the queue" in scheduler(trial.stack), 0.5)
    until("the scheduler looks again", lambda: scheduler(trial.stack) == "", 0.5)
    trial.seen.note("`/readyz` is not ready and says how long ago the scheduler checked the work; later it is ready")


@pytest.mark.fault("P13")
@pytest.mark.parametrize("subjects", [SUBJECTS[:2], SUBJECTS[2:], SUBJECTS], ids=lambda found: "+".join(found))
def test_stopped_processes_cost_what_they_were_stopped_for(trial: Trial, subjects: tuple[Subject, ...]) -> None:
    trial.seen.describe(f"SIGSTOP for {STOPPED_S:.0f} s at half of the judge's calls: {', '.join(subjects)}")
    outlasts(trial, "P13", STOPPED_S, *subjects)


@pytest.mark.fault("P16")
@pytest.mark.parametrize("subject", [Subject.ORCHESTRATOR, Subject.JUDGE, Subject.POSTGRES], ids=str)
def test_a_process_that_hangs_is_restarted(trial: Trial, subject: Subject) -> None:
    trial.seen.describe("SIGSTOP of orchestrator, judge worker or PostgreSQL at half of the judge's calls; no SIGCONT")
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


# The scheduler, the guard and the model server are killed in every state of a flip.

STATES = (
    FlipState.DRAINING,
    FlipState.UNLOADING,
    FlipState.VERIFY_FREE,
    FlipState.LOADING,
    FlipState.VERIFY_RESIDENT,
)
HELD = (
    "while a gate in the database holds the guard in each of draining, unloading, verify_free, loading, verify_resident"
)
NEWEST = "SELECT state, reason FROM residencies ORDER BY epoch DESC LIMIT 1"


@pytest.mark.fault("P8")
@pytest.mark.parametrize("state", STATES)
def test_a_guard_that_dies_in_a_flip_is_followed_by_one_that_begins_anew(trial: Trial, state: FlipState) -> None:
    trial.seen.describe(f"SIGKILL of the guard {HELD}")
    trial.survives("P8", at(at_flip_state(state), kill(Subject.GUARD)))
    with Session(trial.stack) as session:
        assert session.rows("SELECT count(*) FROM residencies WHERE reason = 'guard_restart'")[0][0]
    trial.seen.note(
        "the next guard closes the open residency (`guard_restart`); the model servers died with the first guard"
    )


@pytest.mark.fault("P9")
@pytest.mark.parametrize("state", STATES)
def test_a_scheduler_that_dies_in_a_flip_is_not_missed(trial: Trial, state: FlipState) -> None:
    trial.seen.describe(f"SIGKILL of the orchestrator {HELD}")
    report = trial.survives("P9", at(at_flip_state(state), kill(Subject.ORCHESTRATOR)))
    assert report["calls_lapsed"] <= IN_FLIGHT


@pytest.mark.fault("P9")
def test_a_scheduler_that_dies_while_it_decides_has_decided_nothing(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of the orchestrator while a gate holds the row of its decision")
    with gate(trial.stack, Write("residencies", "INSERT", "true")) as held:
        job = trial.stack.submit("P9", **JOB)
        held.wait_until_reached()
        before = epochs(trial)
        trial.processes.kill(Subject.ORCHESTRATOR)
        held.open()
        until("its decision is rolled back", lambda: not held.list_waiting())
        assert epochs(trial) == before
    trial.ends_whole(job)
    trial.seen.note("an uncommitted decision has no effect")


@pytest.mark.fault("P10")
@pytest.mark.parametrize("stage", STAGES)
def test_a_model_server_that_dies_at_work_is_loaded_again(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGKILL of the model server at 30 % of a stage's calls")
    report = trial.survives("P10", at(Moment(stage, 0.3), kill(Subject.SERVER)))
    assert report["model_loads"] > 2
    with Session(trial.stack) as session:
        assert session.rows("SELECT count(*) FROM residencies WHERE reason = 'server_exit'")[0][0]
    trial.seen.note("its residency is closed (`server_exit`), and the model is loaded again")


@pytest.mark.fault("P10", "P8")
@pytest.mark.parametrize("guard_too", [False, True], ids=["server", "server and guard"])
def test_a_model_server_that_dies_while_it_loads_costs_a_quarantine(trial: Trial, guard_too: bool) -> None:
    trial.seen.describe("SIGKILL of the model server in the middle of its load")
    before = {server.pid for server in trial.processes.servers()}
    with gate(trial.stack, Write("residencies", "UPDATE", "NEW.state = 'quarantined'")) as held:
        job = trial.stack.submit("P10", **JOB)
        until("a model server comes", lambda: {server.pid for server in trial.processes.servers()} - before, 0.002)
        trial.processes.signal(Subject.SERVER, signal.SIGSTOP)  # it must not be up before we have looked
        assert guard_state(trial.stack)["state"] == FlipState.LOADING
        trial.processes.kill(Subject.SERVER)
        held.wait_until_reached()
        assert guard_state(trial.stack)["state"] == FlipState.QUARANTINED
        if guard_too:
            trial.seen.describe("SIGKILL of the guard while a gate holds it in quarantined")
            trial.processes.kill(Subject.GUARD)
    trial.ends_whole(job)
    trial.seen.note(
        "the device is quarantined with a message and tried again ten seconds later, or at once by the next guard"
    )


def epochs(trial: Trial) -> int:
    with Session(trial.stack) as session:
        found: int = session.rows("SELECT count(*) FROM residencies")[0][0]
        return found


# kill -9 between an upload of another system's answers and their grading.

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
    trial.seen.note("the answers are stored with their job; grading continues, and equal pairs are graded once")


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
