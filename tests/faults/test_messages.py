"""Ticks that come five times, in another order, not at all, again, or by the hundred thousand: they say nothing."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kombu import pools

from shared.calls import Lane
from shared.queue import DRAIN, KEY_PREFIX, MAX_QUEUED, celery_app
from tests.faults.processes import judge_worker, until
from tests.faults.proxied import Proxied, client
from tests.faults.recording import Seen
from tests.faults.trial import JOB

JUDGES = 5
FLOOD = 100_000
UNACKED = f"{KEY_PREFIX}unacked"


@pytest.fixture(scope="module", autouse=True)
def judges(it: Proxied, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ExitStack() as workers:
        for _ in range(JUDGES - 1):
            workers.enter_context(judge_worker(it.for_workers(), tmp_path_factory.mktemp("judge")))
        until("all of them are there", lambda: len(it.heartbeats("judge")) >= JUDGES)
        yield


@pytest.mark.fault("Q1")
def test_a_tick_in_five_hands_at_once_is_one_tick(it: Proxied, seen: Seen) -> None:
    seen.describe(f"every tick is pushed five times by one command, to {JUDGES} workers of the judge's lane")
    it.ticks.copies = 5
    job = it.stack.submit("Q1", **JOB)
    it.ends_whole(job, seen)
    seen.figure("ticks, each five times", it.ticks.sent)


@pytest.mark.fault("Q2")
def test_the_order_of_ticks_means_nothing(it: Proxied, seen: Seen) -> None:
    seen.describe("twice, a tick is held back until the next one of its lane has been sent")
    it.ticks.swaps = 2
    job = it.stack.submit("Q2", **JOB)
    it.ends_whole(job, seen)


@pytest.mark.fault("Q3")
@pytest.mark.parametrize("every", [1, 3])
def test_lost_ticks_cost_time_until_the_sweeper_sends_others(it: Proxied, seen: Seen, every: int) -> None:
    seen.describe("the first ticks of a job, or every third, are not pushed, and their sender is told that they were")
    lost = it.ticks.dropped
    it.ticks.drop_every = every
    job = it.stack.submit(f"Q3-{every}", **JOB)
    until("ticks are lost", lambda: it.ticks.dropped > lost or it.has_ended(job))
    it.ticks.drop_every = 0 if every == 1 else every
    it.ends_whole(job, seen)
    assert it.ticks.dropped > lost
    seen.figure("ticks lost", it.ticks.dropped - lost)


@pytest.mark.fault("Q4")
def test_a_tick_that_is_delivered_again_while_it_runs_changes_nothing(it: Proxied, seen: Seen) -> None:
    seen.describe(
        "unacknowledged ticks pushed again while they run, as the transport does after its visibility timeout"
    )
    job = it.submit_judging("Q4")
    again = 0
    with client(it.redis) as known:
        for share in (0.1, 0.3, 0.5):
            it.wait_until_judged(job, share)
            for entry in known.hvals(UNACKED):
                message, _, lane = json.loads(entry)
                known.rpush(KEY_PREFIX + lane, json.dumps(message))
                again += 1
    it.ends_whole(job, seen)
    assert again > 0
    seen.figure("ticks delivered again", again)


@pytest.mark.fault("Q5")
def test_a_hundred_thousand_ticks_are_gone_in_a_moment(it: Proxied, seen: Seen) -> None:
    seen.describe(f"{FLOOD:,} ticks as Celery writes them pushed to the judge's lane in the middle of its work")
    messages = flood(it)
    job = it.submit_judging("Q5")
    with client(it.redis) as known:
        began = time.monotonic()
        longest = max(
            known.lpush(KEY_PREFIX + Lane.JUDGE.value, *messages[first : first + 10_000])
            for first in range(0, FLOOD, 10_000)
        )
        seen.figure("seconds to push them", time.monotonic() - began)
        assert longest >= 10_000, "a push returns how long the queue is then; it may be empty a moment later"
        began = time.monotonic()
        until("they are gone", lambda: known.llen(KEY_PREFIX + Lane.JUDGE.value) <= MAX_QUEUED)
        seen.figure("seconds until they are gone", time.monotonic() - began)
    it.ends_whole(job, seen)


def flood(it: Proxied) -> list[str]:
    app = celery_app(it.redis.of.url(), 60.0)
    app.send_task(DRAIN, queue="nobody")
    with client(it.redis) as known:
        (sent,) = known.lrange(f"{KEY_PREFIX}nobody", 0, -1)
        known.delete(f"{KEY_PREFIX}nobody")
    pools.reset()
    app.close()
    template = json.loads(sent)
    return [json.dumps(like(template)) for _ in range(FLOOD)]


def like(message: dict[str, Any]) -> dict[str, Any]:
    identity, tag = str(uuid.uuid4()), str(uuid.uuid4())
    delivery = {**message["properties"]["delivery_info"], "routing_key": Lane.JUDGE.value}
    properties = {**message["properties"], "correlation_id": identity, "delivery_tag": tag, "delivery_info": delivery}
    return {**message, "headers": {**message["headers"], "id": identity, "root_id": identity}, "properties": properties}
