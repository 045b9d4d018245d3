"""kill -9 and SIGTERM of what matters, in the middle of every stage: the job ends by itself, and its audit is clean."""

import asyncio
import signal
from contextlib import ExitStack

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from shared.calls import Lane
from shared.queue import Ticker, celery_app
from tests.faults.gates import Session, Write, gate
from tests.faults.processes import resume, until
from tests.faults.trial import IN_FLIGHT, JOB, Trial
from tests.faults.vocabulary import Moment, Subject, at, at_judged_share, flush, kill, terminate
from tests.running import RunningStack

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
    trial.seen.note("the worker's main process stays and forks another child")


@pytest.mark.fault("P7")
@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_is_told_to_stop_gives_back_what_it_holds(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGTERM of the worker at 30 % of its stage's calls")
    report = trial.survives("P7", at(Moment(stage, 0.3), terminate(WORKERS[stage])))
    assert report["calls_lapsed"] == 0
    trial.seen.note("no claim lapses: what was in flight is given back uncharged")


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
    assert 0 < report["calls_lapsed"] <= 2 * IN_FLIGHT  # whoever follows waits at the gate, too
    trial.seen.note("the replies are lost with their worker, their claims lapse, and the calls run again")


@pytest.mark.fault("P3")
@pytest.mark.parametrize("stage", STAGES)
def test_a_reply_that_was_committed_is_not_computed_again(trial: Trial, stage: str) -> None:
    trial.seen.describe("SIGKILL of the worker while a gate holds the commit of its replies, which then goes through")
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
    assert report["calls_lapsed"] <= 2 * IN_FLIGHT  # whoever follows waits at the gate, too
    trial.seen.note("the tick is left unacknowledged, the committed replies count, and the sweeper wakes who waits")


@pytest.mark.fault("P4")
def test_a_tick_that_was_taken_and_never_noted_is_given_again(trial: Trial) -> None:
    trial.seen.describe("SIGKILL of an idle worker that was stopped when Redis handed it a tick")
    with redis.Redis.from_url(trial.stack.redis_url()) as client:
        until("the workers are idle", lambda: not client.exists(MARK))
        noted = client.hlen(UNACKED)  # what workers that were killed before have left
        until("a stopped worker has taken a tick", lambda: _taken_by_a_stopped_worker(trial, client))
        try:
            assert client.exists(MARK)
            assert client.hlen(UNACKED) <= noted
        finally:
            trial.processes.kill(Subject.JUDGE)
    trial.ends_whole(trial.stack.submit("P4", **JOB))
    trial.seen.note("the mark of the lost tick hides others for 30 s at most; then the sweeper's goes through")


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
