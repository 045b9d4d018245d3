"""Redis that restarts, forgets, is full, slow, or away: it wakes and nothing else, so a job only takes longer."""

import json
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

from mathrag_gate.stack import redis as redis_module
from mathrag_gate.stack.redis import find_free_port
from shared.calls import Lane
from shared.lease.lease import RENEW_S, TTL_S
from shared.queue import DRAIN, KEY_PREFIX, MAX_QUEUED, celery_app
from tests.faults.processes import judge_worker, until
from tests.faults.proxied import Proxied, Server, client
from tests.faults.proxy import HOST
from tests.faults.recording import Seen
from tests.faults.trial import JOB
from tests.running import Document

AWAY_S = 60.0
SILENT_S = 20.0
"""Longer than the lease lives and a client waits for an answer."""
WAITING = """
    SELECT 1 FROM queue q JOIN models m ON m.id = q.model_id WHERE q.lane = 'judge' AND m.needs_lease LIMIT 1"""
ANSWERED = "SELECT count(*) FROM attempts WHERE accepted"
WANTED_SINCE = "SELECT count(*) FROM residencies WHERE wanted_at > :since"


@pytest.mark.fault("R1")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL], ids=["in order", "kill -9"])
def test_a_redis_that_comes_back_with_its_file_costs_a_moment(it: Proxied, seen: Seen, by: signal.Signals) -> None:
    seen.describe(f"{by.name} of Redis in the middle of the judge's stage, then started on its append-only file")
    job = it.submit_judging("R1", 0.3)
    with it.redis.keep_stopped(by):
        pass
    it.ends_whole(job, seen)


@pytest.mark.fault("R2")
def test_a_redis_that_is_flushed_over_and_over_costs_nothing_but_time(it: Proxied, seen: Seen) -> None:
    seen.describe("FLUSHALL at 20, 40, 60 and 80 % of the judge's calls")
    job = it.submit_judging("R2")
    for share in (0.2, 0.4, 0.6, 0.8):
        it.wait_until_judged(job, share)
        with client(it.redis) as known:
            known.flushall()
    it.ends_whole(job, seen)


@pytest.mark.fault("R2")
def test_a_redis_that_comes_back_without_its_file_costs_a_moment(it: Proxied, seen: Seen) -> None:
    seen.describe("kill -9 of Redis at 30 % of the judge's calls, its append-only file removed, started again")
    job = it.submit_judging("R2-empty", 0.3)
    with it.redis.keep_stopped(signal.SIGKILL):
        for kept in (*it.redis.of.directory.glob("appendonly*"), *it.redis.of.directory.glob("*.rdb")):
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    it.ends_whole(job, seen)


@pytest.mark.fault("R3")
def test_connections_that_are_killed_are_made_again(it: Proxied, seen: Seen) -> None:
    killed = 0
    job = it.submit_judging("R3")
    for share in (0.1, 0.3, 0.5, 0.7):
        it.wait_until_judged(job, share)
        with client(it.redis) as known:
            killed += int(known.client_kill_filter(_type="normal", skipme=True))
    assert killed > 8
    seen.describe("CLIENT KILL TYPE normal at 10, 30, 50 and 70 % of the judge's calls")
    seen.figure("connections killed", killed)
    it.ends_whole(job, seen)


@pytest.mark.fault("R4")
def test_no_flip_begins_while_redis_is_away_and_all_goes_on_afterwards(it: Proxied, seen: Seen) -> None:
    job = it.stack.submit("R4", **JOB)
    with drain_device(it) as device:
        until("the judge has work", lambda: it.rows(WAITING))
        with it.to_redis.heal_afterwards():
            it.to_redis.part()
            log_size = it.log("orchestrator").stat().st_size
            ((since,),) = it.rows("SELECT clock_timestamp()")
            release(it, device)
            until("a flip is due", lambda: b"while Redis is away" in it.log("orchestrator").read_bytes()[log_size:])
            time.sleep(AWAY_S)
            assert it.rows(WANTED_SINCE, since=since) == [(0,)]
    it.ends_whole(job, seen)
    seen.describe(
        f"every connection to Redis reset and none accepted for {AWAY_S:.0f} s; during the outage an emptied device is "
        f"released, so a flip is due"
    )
    seen.note("no residency is wanted during the outage; the flip begins when Redis is back")


@contextmanager
def drain_device(it: Proxied) -> Iterator[str]:
    (device,) = it.stack.get("/v1/gpus")
    path = f"/v1/gpus/{device['device']}"
    assert it.stack.api.post(f"{path}/drain").status_code == 202
    try:
        until("the device is empty", lambda: is_empty(it.stack.get(path)))
        yield path
    finally:
        release(it, path)


def is_empty(device: Document) -> bool:
    return device["state"] in ("open", "closed") and not device["models"]


def release(it: Proxied, device: str) -> None:
    assert it.stack.api.post(f"{device}/release").status_code == 202


@pytest.mark.fault("R4")
def test_calls_that_have_begun_are_answered_while_redis_is_away(it: Proxied, seen: Seen) -> None:
    seen.describe(f"every connection to Redis reset and none accepted for {TTL_S + 3} s at 30 % of the judge's calls")
    job = it.submit_judging("R4-at-work", 0.3)
    with it.to_redis.heal_afterwards():
        it.to_redis.part()
        ((before,),) = it.rows(ANSWERED)
        until("calls are answered", lambda: it.rows(ANSWERED) > [(before,)])
        time.sleep(TTL_S + 3)
    it.ends_whole(job, seen)


@pytest.mark.fault("R4")
def test_a_redis_behind_a_dead_cable_holds_nobody_for_ever(it: Proxied, seen: Seen) -> None:
    seen.describe(f"connections to Redis kept open and silent for {SILENT_S:.0f} s, longer than the lease lives")
    job = it.submit_judging("R4-silent", 0.3)
    with it.to_redis.heal_afterwards():
        it.to_redis.silence()
        time.sleep(SILENT_S)
    it.ends_whole(job, seen)


@pytest.mark.fault("R5")
def test_a_full_redis_stops_claims_and_loses_none(it: Proxied, seen: Seen) -> None:
    seen.describe(f"CONFIG SET maxmemory 1 with noeviction at 30 % of the judge's calls, for {TTL_S + 3} s")
    job = it.submit_judging("R5", 0.3)
    with client(it.redis) as known:
        assert known.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        try:
            known.config_set("maxmemory", 1)
            time.sleep(TTL_S + 3)
        finally:
            known.config_set("maxmemory", 0)
    it.ends_whole(job, seen)


@pytest.mark.fault("R6")
def test_a_failover_to_a_stale_replica_serves_no_old_epoch(it: Proxied, seen: Seen, tmp_path: Path) -> None:
    seen.describe("clients moved, while the generator is resident, to a replica cut off while the judge was")
    with replica(it, tmp_path / "replica") as stale, it.to_redis.heal_afterwards():
        job = it.submit_judging("R6", 0.2)
        old = lease(stale)
        it.stack.wait(job, lambda document: document["stages"].get("generate", {}).get("done", 0) > 0)
        assert int(lease(it.redis)["epoch"]) > int(old["epoch"])
        it.to_redis.switch(stale.of.port)
        it.ends_whole(job, seen)
    seen.note("the old epoch grants nothing: none of its residencies was opened again")


@contextmanager
def replica(it: Proxied, folder: Path) -> Iterator[Server]:
    server = Server(
        redis_module.Redis(folder, port=find_free_port(), passwords=it.redis.of.passwords), redis_module.STOP_SIGNAL
    )
    server.start()
    try:
        with client(server) as follower:
            follower.config_set("masterauth", it.redis.of.passwords.redis)
            follower.replicaof(HOST, str(it.redis.of.port))
            until("the replica is up to date", lambda: follower.info("replication").get("master_link_status") == "up")
            follower.replicaof("NO", "ONE")
        yield server
    finally:
        server.stop()


def lease(server: Server) -> dict[str, str]:
    with client(server) as known:
        (key,) = known.scan_iter("mathrag:gpu:*:lease")
        return known.hgetall(key)


@pytest.mark.fault("R7")
def test_scripts_that_are_forgotten_are_sent_again(it: Proxied, seen: Seen) -> None:
    seen.describe("SCRIPT FLUSH, ten times a second from the job's submission to its end")
    job = it.stack.submit("R7", **JOB)
    with client(it.redis) as known:
        flushes = count()

        def flush() -> bool:
            known.script_flush()
            next(flushes)
            return it.has_ended(job)

        until("the job has ended", flush, 0.1)
    seen.figure("flushes", next(flushes))
    it.ends_whole(job, seen)


@pytest.mark.fault("R8")
@pytest.mark.parametrize(("delay_s", "seconds"), [(0.2, 0), (RENEW_S + 1, 25)], ids=["slow", "slower than renewals"])
def test_a_slow_redis_makes_a_job_slower(it: Proxied, seen: Seen, delay_s: float, seconds: float) -> None:
    for_how_long = f"for {seconds:.0f} s" if seconds else "for the whole job"
    seen.describe(f"every message to and from Redis held back for {delay_s:.1f} s, {for_how_long}")
    job = it.submit_judging("R8", 0.2)
    with it.to_redis.heal_afterwards():
        it.to_redis.delay_s = delay_s
        if seconds:
            time.sleep(seconds)
        else:
            it.ends_whole(job, seen)
    it.ends_whole(job, seen)


# Ticks that come five times, in another order, not at all, again, or by the hundred thousand: they say nothing.

JUDGES = 5
FLOOD = 100_000
UNACKED = f"{KEY_PREFIX}unacked"


@pytest.fixture(scope="module")
def judges(it: Proxied, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ExitStack() as workers:
        for _ in range(JUDGES - 1):
            workers.enter_context(judge_worker(it.for_workers(), tmp_path_factory.mktemp("judge")))
        until("all of them are there", lambda: len(it.heartbeats("judge")) >= JUDGES)
        yield


@pytest.mark.usefixtures("judges")
@pytest.mark.fault("Q1")
def test_a_tick_in_five_hands_at_once_is_one_tick(it: Proxied, seen: Seen) -> None:
    seen.describe(f"every tick is pushed five times by one command, to {JUDGES} workers of the judge's lane")
    it.ticks.copies = 5
    job = it.stack.submit("Q1", **JOB)
    it.ends_whole(job, seen)
    seen.figure("ticks, each five times", it.ticks.sent)


@pytest.mark.usefixtures("judges")
@pytest.mark.fault("Q2")
def test_the_order_of_ticks_means_nothing(it: Proxied, seen: Seen) -> None:
    seen.describe("twice, a tick is held back until the next one of its lane has been sent")
    it.ticks.swaps = 2
    job = it.stack.submit("Q2", **JOB)
    it.ends_whole(job, seen)


@pytest.mark.usefixtures("judges")
@pytest.mark.fault("Q3")
@pytest.mark.parametrize("every", [1, 3])
def test_lost_ticks_cost_time_until_the_sweeper_sends_others(it: Proxied, seen: Seen, every: int) -> None:
    seen.describe("the first ticks of a job, or every third, are not pushed, although their sender gets a success")
    lost = it.ticks.dropped
    it.ticks.drop_every = every
    job = it.stack.submit(f"Q3-{every}", **JOB)
    until("ticks are lost", lambda: it.ticks.dropped > lost or it.has_ended(job))
    it.ticks.drop_every = 0 if every == 1 else every
    it.ends_whole(job, seen)
    assert it.ticks.dropped > lost
    seen.figure("ticks lost", it.ticks.dropped - lost)


@pytest.mark.usefixtures("judges")
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


@pytest.mark.usefixtures("judges")
@pytest.mark.fault("Q5")
def test_a_hundred_thousand_ticks_are_gone_in_a_moment(it: Proxied, seen: Seen) -> None:
    seen.describe(f"{FLOOD:,} ticks in Celery's format pushed to the judge's lane during its work")
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
