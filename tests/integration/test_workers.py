"""Workers: chunks, whole jobs, ticks, and processes that go on while Redis is away."""

import asyncio
import base64
import http.server
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import kombu.exceptions
import pytest
import yaml
from celery import Celery
from kombu import pools
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from sqlalchemy.exc import OperationalError

from mathrag_gate.stack.process import make_heartbeat_answer_test
from mathrag_gate.stack.redis import find_free_port
from shared import probe
from shared.calls import Lane
from shared.lease import lease
from shared.lease.lease import DeviceLease, GuardClient, Guards, NotGranted, Phase, RedisLease, StreamBroken
from shared.queue import COALESCE_S, DRAIN, MAX_QUEUED, Ticker, celery_app
from shared.runtime import heartbeats
from shared.runtime import worker as worker_runtime
from shared.runtime.process import ForkedWorker, Tools
from shared.runtime.queue import AnsweredCall, ClaimedCall, Claims, lapse_expired
from shared.runtime.worker import FIRST_BATCH, Executor, LaneWorker, Lapse, Release
from shared.settings import Settings, Workers
from shared.storage.database import Database
from tests import golden
from tests.doubles.chat_server import ChatServer, Reply, as_json, chat_server
from tests.faults.proxy import Proxy
from tests.faults.recording import Seen
from tests.integration.scene import (
    Leases,
    ScriptedExecutor,
    SilentTicker,
    add_dataset,
    advance,
    answered,
    claim_some,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    let_pauses_pass,
    model,
    queue_job,
    rows,
    run_sql,
    sample_states,
    scalar,
    submit_job,
    worker,
)

pytestmark = pytest.mark.anyio


class Refusing(ScriptedExecutor):
    def __init__(self, error: Exception, answers: int, times: int = 1) -> None:
        super().__init__()
        self._errors = [error] * times
        self._answers = answers

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        count = 0
        async for each in super().run(calls, epoch):
            if self._errors and count == self._answers:
                raise self._errors.pop()
            count += 1
            yield each


def generator(
    database: Database, executor: ScriptedExecutor, lease: DeviceLease | None = None, **limits: object
) -> LaneWorker:
    made = worker(database, Lane.GENERATE, executor, **limits)
    if lease is not None:
        made.guards = Leases(lease)  # type: ignore[assignment]
    return made


async def queue(database: Database) -> list[tuple[object, ...]]:
    return await rows(database, "SELECT token IS NOT NULL, lapses, tries FROM queue ORDER BY call_id")


async def test_a_chunk_that_is_not_granted_goes_back_uncharged(database: Database) -> None:
    await queue_job(database, 4)
    # Refused for good: on a busy machine the pause of released calls is over before the worker looks again.
    await generator(database, Refusing(NotGranted("another epoch"), 0, times=1000)).drain()
    assert await queue(database) == [(False, 0, 0)] * 4
    assert await scalar(database, "SELECT count(*) FROM queue WHERE not_before IS NULL") == 0
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0


async def test_keda_counts_the_calls_that_keep_workers_of_a_lane_busy(database: Database) -> None:
    rendered = yaml.safe_load_all((golden.FOLDER / "helm" / "full.yaml").read_text("utf-8"))
    generate, judge = (
        each["spec"]["triggers"][0]["metadata"]["query"] for each in rendered if each and each["kind"] == "ScaledObject"
    )
    await queue_job(database, 4)
    assert (await scalar(database, generate), await scalar(database, judge)) == (4, 0)
    await claim_some(database, 3)
    assert await scalar(database, generate) == 4
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 hour' WHERE token IS NULL")
    assert await scalar(database, generate) == 3


async def test_a_chunk_that_broke_off_charges_what_was_not_answered(database: Database) -> None:
    await queue_job(database, 4)
    executor = Refusing(StreamBroken("gone"), 2)
    await generator(database, executor).drain()
    assert await rows(database, "SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("lapsed", 2),
        ("value", 4),
    ]
    assert await sample_states(database) == [2] * 4
    assert sorted(executor.ran.values()) == [1, 1, 1, 2]


async def test_suspects_that_a_worker_made_go_out_one_by_one(database: Database) -> None:
    await queue_job(database, 4)
    chunks = []

    class Counting(Refusing):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            chunks.append(len(calls))
            async for each in super().run(calls, epoch):
                yield each

    await generator(database, Counting(StreamBroken("gone"), 1)).drain()
    assert chunks == [4, 1, 1, 1]


@pytest.mark.parametrize(("end", "left"), [(Lapse, (False, 1, 0)), (Release, (False, 0, 0))])
async def test_single_calls_are_charged_or_given_back_as_the_guard_says(
    database: Database, end: type[Lapse] | type[Release], left: tuple[object, ...]
) -> None:
    await queue_job(database, 3)

    class Partly(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            if len(calls) == 1:
                raise NotGranted("once is enough")
            yield end(calls[0].id)
            async for each in super().run(calls[1:], epoch):
                yield each

    await generator(database, Partly()).drain()
    assert await queue(database) == [left]
    assert sorted(await sample_states(database)) == [1, 2, 2]


async def test_leased_models_are_not_claimed_without_the_lease(database: Database) -> None:
    await queue_job(database, 4)
    generate = await model(database)
    for unfit in (
        DeviceLease(epoch=1, phase=Phase.OPEN, models=(await model(database, "a-judge"),)),
        DeviceLease(epoch=1, phase=Phase.DRAINING, models=(generate,)),
        DeviceLease(epoch=1, phase=Phase.LOADING, models=(generate,)),
        DeviceLease(epoch=1, phase=Phase.QUARANTINED, models=(generate,)),
    ):
        executor = ScriptedExecutor()
        await generator(database, executor, unfit).drain()
        assert not executor.ran
        assert await queue(database) == [(False, 0, 0)] * 4
    nobody = worker(database, Lane.GENERATE, executor)
    nobody.guards = Leases(None)  # type: ignore[assignment]
    await nobody.drain()
    assert not executor.ran


async def test_leased_calls_go_out_with_the_epoch_of_the_lease(database: Database) -> None:
    await queue_job(database)
    lease = DeviceLease(epoch=42, phase=Phase.OPEN, models=(await model(database),))
    await generator(database, ScriptedExecutor(), lease).drain()
    assert await rows(database, "SELECT DISTINCT epoch, device FROM attempts") == [(42, "cpu:0")]


async def test_models_that_need_no_lease_run_without_one(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "hybrid")
    executor = ScriptedExecutor()
    judge = worker(database, Lane.JUDGE, executor)
    judge.guards = Leases(None)  # type: ignore[assignment]
    await judge.drain()
    assert len(executor.ran) == 4
    assert await rows(database, "SELECT DISTINCT epoch FROM attempts") == [(None,)]
    assert judge.ticker.ticks.count(Lane.GENERATE) >= 1  # type: ignore[attr-defined]


async def test_a_stale_result_is_logged_and_changes_nothing(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await queue_job(database)

    class Frozen(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            if not self.ran:
                await let_claims_expire(database)
                await lapse_expired(database, "sweeper")
            async for each in super().run(calls, epoch):
                yield each

    executor = Frozen()
    with caplog.at_level(logging.WARNING, logger=worker_runtime.__name__):
        await generator(database, executor).drain()
    assert [record.getMessage() for record in caplog.records if "stale_result" in record.getMessage()] != []
    assert await sample_states(database) == [2, 2]
    assert sorted(executor.ran.values()) == [2, 2]
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == 2


async def test_replies_are_committed_in_windows_as_they_come(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue_job(database, 4)
    committed = asyncio.Event()
    batches: list[int] = []
    real = Claims.answer

    async def counting(self: Claims, token: object, answers: Sequence[AnsweredCall]) -> list[int]:
        batches.append(len(answers))
        done = await real(self, token, answers)  # type: ignore[arg-type]
        committed.set()
        return done

    class Slow(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            yield answered(calls[0])
            yield answered(calls[1])
            await committed.wait()
            assert await scalar(database, "SELECT count(*) FROM attempts") == 2
            for call in calls[2:]:
                yield answered(call)

    monkeypatch.setattr(Claims, "answer", counting)
    await generator(database, Slow()).drain()
    assert batches == [2, 2]
    assert await sample_states(database) == [2] * 4


async def test_claims_are_kept_while_a_chunk_runs(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue_job(database, 3)
    renewed: list[list[int]] = []
    again = asyncio.Event()
    real = Claims.renew

    async def counting(self: Claims, token: object, calls: Sequence[int]) -> list[int]:
        renewed.append(await real(self, token, calls))  # type: ignore[arg-type]
        if len(renewed[-1]) == len(calls) == 2:
            again.set()
        return renewed[-1]

    class Slow(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            yield answered(calls[0])
            await again.wait()
            for call in calls[1:]:
                yield answered(call)

    monkeypatch.setattr(Claims, "renew", counting)
    async with asyncio.timeout(60):
        await generator(database, Slow(), claim_ttl_s=0.03).drain()
    assert again.is_set()
    assert await sample_states(database) == [2] * 3


async def test_a_renewal_that_fails_is_tried_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue_job(database, 1)
    tries: list[int] = []
    again = asyncio.Event()

    async def failing_once(self: Claims, token: object, calls: Sequence[int]) -> list[int]:
        tries.append(len(calls))
        if len(tries) == 1:
            raise OperationalError("renew", {}, Exception("the database is starting up"))
        again.set()
        return list(calls)

    class Slow(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            await again.wait()
            for call in calls:
                yield answered(call)

    monkeypatch.setattr(Claims, "renew", failing_once)
    async with asyncio.timeout(60):
        await generator(database, Slow(), claim_ttl_s=0.03).drain()
    assert await sample_states(database) == [2]


async def test_a_drain_claims_no_more_streams_than_it_may(database: Database) -> None:
    await queue_job(database, 8)
    started = asyncio.Semaphore(0)

    class Gated(ScriptedExecutor):
        async def run(
            self, calls: Sequence[ClaimedCall], epoch: int | None
        ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
            started.release()
            async for each in super().run(calls, epoch):
                yield each

    executor = Gated()
    executor.gate = asyncio.Event()
    draining = asyncio.create_task(generator(database, executor, chunk=2, streams=2).drain())
    async with asyncio.timeout(60):
        await started.acquire()
        await started.acquire()
    assert started.locked()
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 4
    executor.gate.set()
    await draining
    assert await sample_states(database) == [2] * 8


class Watching(ScriptedExecutor):
    """Remembers the role of each chunk, and how many samples were still ready when the first one began."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self.roles: list[str] = []
        self.ready: list[object] = []

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        self.roles.append(calls[0].role)
        self.ready.append(await scalar(self._database, "SELECT count(*) FROM samples WHERE state = 0"))
        async for each in super().run(calls, epoch):
            yield each


async def test_a_model_that_stands_idle_gets_calls_before_searches_and_one_that_works_leaves_them_a_stream(
    database: Database,
) -> None:
    await furnish(database, items=3)
    await submit_job(database)
    searching = worker(database, Lane.JUDGE, ScriptedExecutor())
    searching.guards = Leases(None)  # type: ignore[assignment]
    await searching.drain()
    await add_dataset(database, 4, "others", changed=frozenset(range(4)))
    await submit_job(database, "hybrid", dataset="others")
    await advance(database)
    watching = Watching(database)
    await worker(database, Lane.JUDGE, watching, chunk=2, streams=2).drain()
    assert watching.roles[:2] == ["judge", "retrieve"]


async def test_the_first_calls_of_a_job_begin_before_the_rest_of_its_samples_is_advanced(database: Database) -> None:
    await furnish(database, items=120)
    await submit_job(database, params={"quality": "rules"})
    watching = Watching(database)
    preparing = worker(database, Lane.JUDGE, watching)
    await preparing.drain()
    assert watching.roles[0] == "retrieve"
    assert watching.ready[0] == 120 - FIRST_BATCH
    assert Lane.GENERATE in preparing.ticker.ticks  # type: ignore[attr-defined]


async def test_a_worker_advances_wakes_the_other_lane_and_ends_the_job(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "closed-book")
    executor = ScriptedExecutor()
    first = worker(database, Lane.GENERATE, executor)
    await first.drain()
    assert isinstance(first.ticker, SilentTicker)
    assert Lane.JUDGE in first.ticker.ticks
    assert await job_states(database) == ["running"]
    await worker(database, Lane.JUDGE, executor).drain()
    assert await job_states(database) == ["completed"]


async def test_a_drain_without_work_ends_at_once(database: Database) -> None:
    await furnish(database, items=1)
    idle = worker(database, Lane.JUDGE, ScriptedExecutor())
    await idle.drain()
    assert idle.ticker.ticks == []  # type: ignore[attr-defined]


async def test_an_executor_that_crashes_once_charges_no_call(database: Database) -> None:
    await queue_job(database)
    await generator(database, Refusing(ZeroDivisionError("defect"), 0)).drain()
    assert await sample_states(database) == [2, 2]
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE NOT accepted") == 0


async def test_new_calls_of_its_own_lane_wake_idle_workers(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "closed-book")
    working_alone = worker(database, Lane.GENERATE, ScriptedExecutor())
    await working_alone.drain()
    assert working_alone.ticker.ticks == [Lane.GENERATE, Lane.GENERATE, Lane.JUDGE]  # type: ignore[attr-defined]


class Brittle(ScriptedExecutor):
    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question.encode()
        self.chunks: list[int] = []

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        self.chunks.append(len(calls))
        if any(self._question in call.request for call in calls):
            raise ValueError("cannot be rendered")
        async for each in super().run(calls, epoch):
            yield each


@pytest.mark.fault("V1")
async def test_a_call_that_cannot_be_run_fails_alone(database: Database, seen: Seen) -> None:
    seen.describe("an executor raises for a chunk of eight calls because of one of them")
    await furnish(database, items=8)
    await submit_job(database, "closed-book")
    await advance(database)
    executor = Brittle("What is 3 plus 3?")
    await generator(database, executor).drain()
    assert sorted(executor.chunks) == [1, 1, 2, 2, 4, 4, 8]
    assert await rows(database, "SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("backend_error", 1),
        ("value", 7),
    ]
    for _ in range(2):
        await let_pauses_pass(database)
        await generator(database, executor).drain()
    await advance(database)
    assert await rows(database, "SELECT ordinal, failure FROM samples WHERE state = 3") == [(3, "backend_error")]
    seen.note("that call and its sample failed after three tries; the other seven were answered at once")


# The size of chunks: what a model answers in half a second, and enough for all its slots.


class PacedExecutor(ScriptedExecutor):
    """Takes `seconds` per call, by its own clock, and remembers the sizes of its chunks."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = timedelta(seconds=seconds)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.sizes: list[int] = []

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        self.sizes.append(len(calls))
        async for each in super().run(calls, epoch):
            assert isinstance(each, AnsweredCall)
            began, self.now = self.now, self.now + self.seconds
            yield replace(each, receipt=replace(each.receipt, started_at=began, ended_at=self.now))


@pytest.mark.parametrize(
    ("seconds", "slots", "sizes"),
    [
        (0.002, 1, [16, 32, 64, 64]),
        (0.02, 1, [16, 25, 25, 25]),
        (1.0, 1, [16, 4, 4, 4]),
        (1.0, 8, [16, 12, 12, 12]),
        (0.002, 1000, [64, 64, 64, 64]),
    ],
)
async def test_a_chunk_is_what_the_model_answers_in_half_a_second_and_fills_its_slots(
    database: Database, seconds: float, slots: int, sizes: list[int]
) -> None:
    await queue_job(database, items=256)
    await run_sql(database, "UPDATE models SET options = jsonb_build_object('parallel', CAST(:n AS integer))", n=slots)
    paced = PacedExecutor(seconds)
    await worker(database, Lane.GENERATE, paced, streams=1).drain()
    assert paced.sizes[:4] == sizes


class UnboundedExecutor(PacedExecutor):
    """Answers all calls of a chunk at the same time, each after `seconds`."""

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        began = self.now
        async for each in super().run(calls, epoch):
            assert isinstance(each, AnsweredCall)
            self.now = began + self.seconds
            yield replace(each, receipt=replace(each.receipt, started_at=began, ended_at=self.now))


async def test_chunks_grow_while_a_slow_model_answers_all_their_calls_at_the_same_time(database: Database) -> None:
    await queue_job(database, items=256)
    slow = UnboundedExecutor(1.0)
    await worker(database, Lane.GENERATE, slow, streams=1).drain()
    assert slow.sizes == [16, 32, 64, 64, 64, 16]


async def test_an_operator_may_claim_fewer_calls_at_once(database: Database) -> None:
    await queue_job(database, items=5)
    paced = PacedExecutor(0.0)
    await worker(database, Lane.GENERATE, paced, chunk=1).drain()
    assert paced.sizes == [1] * 5


# Jobs run to their end on a real database: every call once, every sample once, whatever is asked twice is reused.


async def test_a_job_ends_with_every_sample_completed(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert await rows(database, "SELECT kind, state, count(*) FROM samples GROUP BY 1, 2 ORDER BY 1") == [
        ("item", 2, 5),
        ("prepare", 2, 1),
    ]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_every_call_is_executed_once(database: Database) -> None:
    await furnish(database, items=5)
    await submit_job(database)
    executor = ScriptedExecutor()
    await drain(database, executor)
    assert set(executor.ran.values()) == {1}
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE accepted") == len(executor.ran)


# Ticks: at most one queued per lane, and a broker whose settings lose nothing but time.

PREFIX = "mathrag:celery:"
TICKS_TICK_S = 60.0


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = celery_app(redis_url, TICKS_TICK_S)
    yield app
    pools.reset()
    app.close()


async def queued_ticks(redis: Redis, lane: Lane) -> int:
    return int(await redis.llen(PREFIX + lane.value))  # type: ignore[misc]


async def test_ticks_coalesce(app: Celery, redis: Redis) -> None:
    tickers = [Ticker(app, redis), Ticker(app, redis)]
    for _ in range(50):
        for ticker in tickers:
            await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 1


async def test_a_tick_that_has_begun_makes_room_for_the_next(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 2  # nobody has taken the first one off the queue in this test


async def test_of_too_many_ticks_few_are_kept(app: Celery, redis: Redis) -> None:
    for lane in Lane:
        await redis.lpush(PREFIX + lane.value, *range(1000))  # type: ignore[misc]
    await Ticker(app, redis).clear_tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == MAX_QUEUED
    assert await queued_ticks(redis, Lane.GENERATE) == 1000


async def test_lanes_have_queues_of_their_own(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    for lane in Lane:
        await ticker.tick(lane)
    assert [await queued_ticks(redis, lane) for lane in Lane] == [1, 1]
    await ticker.clear_tick(Lane.JUDGE)
    await ticker.tick(Lane.GENERATE)
    assert await queued_ticks(redis, Lane.GENERATE) == 1


async def test_a_lost_tick_blocks_its_lane_for_a_while_only(app: Celery, redis: Redis) -> None:
    await Ticker(app, redis).tick(Lane.JUDGE)
    (key,) = [key async for key in redis.scan_iter("mathrag:tick:*")]
    assert 0 < await redis.ttl(key) <= COALESCE_S


async def test_a_wiped_redis_is_ticked_anew(app: Celery, redis: Redis) -> None:
    ticker = Ticker(app, redis)
    await ticker.tick(Lane.JUDGE)
    await redis.flushall()
    await ticker.tick(Lane.JUDGE)
    assert await queued_ticks(redis, Lane.JUDGE) == 1


async def test_a_tick_is_json_and_carries_nothing(app: Celery, redis: Redis) -> None:
    await Ticker(app, redis).tick(Lane.JUDGE)
    message = json.loads((await redis.lrange(PREFIX + Lane.JUDGE.value, 0, -1))[0])  # type: ignore[misc]
    assert message["headers"]["task"] == DRAIN
    assert message["content-type"] == "application/json"
    arguments, keywords, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, keywords) == ([], {})


async def test_a_tick_with_redis_down_is_no_error(app: Celery) -> None:
    async with Redis(port=find_free_port(), retry=Retry(NoBackoff(), 0)) as down:
        ticker = Ticker(app, down)
        await ticker.tick(Lane.JUDGE)
        await ticker.clear_tick(Lane.JUDGE)


async def test_a_tick_behind_a_dead_cable_is_no_error(redis_url: str, redis: Redis) -> None:
    url = urlsplit(redis_url)
    with Proxy(url.port or 6379) as proxy:
        app = celery_app(redis_url.replace(f":{url.port}/", f":{proxy.port}/"), TICKS_TICK_S)
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, "socket_timeout": 0.2}
        ticker = Ticker(app, redis)
        await ticker.tick(Lane.JUDGE)
        await ticker.clear_tick(Lane.JUDGE)
        proxy.silence()
        async with asyncio.timeout(60):
            await ticker.tick(Lane.JUDGE)
        pools.reset()
        app.close()
    assert await redis.exists(f"mathrag:tick:{Lane.JUDGE.value}") == 0, "it hides none that comes later"


class BrokenBroker:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.tries = 0

    def send_task(self, name: str, queue: str, headers: dict[str, str]) -> None:
        self.tries += 1
        if self.tries == 1:
            raise kombu.exceptions.OperationalError("broken pipe")
        self.sent.append(queue)


async def test_a_tick_that_could_not_be_sent_does_not_hide_the_next(redis: Redis) -> None:
    broker = BrokenBroker()
    ticker = Ticker(broker, redis)
    await ticker.tick(Lane.JUDGE)
    await ticker.tick(Lane.JUDGE)
    assert broker.sent == ["judge"]


SETTINGS = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "task_acks_on_failure_or_timeout": True,
    "visibility_timeout": 600,
    "worker_prefetch_multiplier": 1,
    "worker_concurrency": 1,
    "worker_pool": "prefork",
    "worker_max_tasks_per_child": None,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "worker_enable_remote_control": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "task_ignore_result": True,
    "result_backend": None,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_queue_max_priority": None,
}


def test_celery_is_set_as_the_study_of_its_failures_demands(app: Celery, subtests: pytest.Subtests) -> None:
    for name in SETTINGS:
        with subtests.test(name=name):
            assert app.conf[name] == SETTINGS[name]


def test_the_broker_connection_is_set_too(app: Celery, subtests: pytest.Subtests) -> None:
    for name, value in (
        ("visibility_timeout", 600),
        ("health_check_interval", 10),
        ("socket_keepalive", True),
        ("socket_timeout", 5),
        ("socket_connect_timeout", 5),
        ("retry_on_timeout", True),
    ):
        with subtests.test(name=name, value=value):
            assert app.conf.broker_transport_options[name] == value
            assert app.conf.broker_transport_options["global_keyprefix"]


def test_time_limits_lie_above_a_tick_and_far_below_redelivery(app: Celery) -> None:
    conf = app.conf
    assert TICKS_TICK_S < conf.task_soft_time_limit < conf.task_time_limit < conf.visibility_timeout


def test_publishing_does_not_hang_on_a_dead_broker(app: Celery) -> None:
    assert app.conf.task_publish_retry_policy["max_retries"] <= 3


def test_a_shutdown_lets_a_drain_give_its_calls_back(app: Celery) -> None:
    assert 5 <= app.conf.worker_soft_shutdown_timeout <= 30


# What a worker process does by itself: it learns whose devices its guards own, and goes on while Redis is away.

DEVICE = "cpu:7"
"""Not the default, and no setting of the worker says so."""
ANSWERED = "SELECT count(*) FROM attempts WHERE accepted"
FREE = "SELECT count(*) FROM queue WHERE token IS NULL AND lane = 'generate'"
WORKER_PROCESS_TICK_S = 0.05


@pytest.fixture
async def guard() -> AsyncIterator[ChatServer]:
    async with chat_server(lambda _: as_json({"device": DEVICE, "state": "open"})) as double:
        yield double


@pytest.fixture
async def forked_worker(
    database: Database, database_url: str, redis_url: str, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ForkedWorker]:
    monkeypatch.setattr(lease, "PAUSE_S", 0.0)

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": ScriptedExecutor()}

    settings = Settings(database_url=database_url, redis_url=redis_url, guard_url=guard.url)
    child = ForkedWorker(Lane.GENERATE, settings, celery_app(redis_url, 60), executors, lambda: False)
    yield child
    await child.close()


@pytest.fixture
async def queued_calls(database: Database, redis_url: str) -> None:
    await furnish(database, items=3)
    await run_sql(database, "UPDATE models SET device = :device WHERE needs_lease", device=DEVICE)
    await submit_job(database, "closed-book")
    async with Redis.from_url(redis_url) as redis:
        await RedisLease(redis, DEVICE).publish(1, Phase.OPEN, [await model(database)])


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_works_under_the_lease_of_the_guard_that_it_was_given(
    forked_worker: ForkedWorker, database: Database
) -> None:
    await forked_worker.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_claims_nothing_for_a_device_whose_guard_it_was_not_given(
    forked_worker: ForkedWorker, database: Database, guard: ChatServer
) -> None:
    guard.respond = lambda _: as_json({"device": "cpu:9", "state": "open"})
    await forked_worker.drain_lane()
    assert await scalar(database, ANSWERED) == 0
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL AND not_before IS NULL") == 3


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_without_a_guard_leaves_the_way_free_for_the_next_tick(
    forked_worker: ForkedWorker, database: Database, guard: ChatServer, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    own, guard.respond = guard.respond, lambda _: Reply(status=503)
    await forked_worker.drain_lane()  # what it advances gives its lane work, and a tick
    async with Redis.from_url(redis_url) as redis:
        assert await redis.exists("mathrag:tick:generate")
        await forked_worker.drain_lane()
        assert not await redis.exists("mathrag:tick:generate")
    assert guard.url in caplog.text
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NULL") == 3
    guard.respond = own
    await forked_worker.drain_lane()
    assert await scalar(database, ANSWERED) == 3


async def test_a_guard_that_is_away_is_not_asked_at_every_look(
    forked_worker: ForkedWorker, guard: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.respond = lambda _: Reply(status=503)
    monkeypatch.setattr(lease, "PAUSE_S", 3600.0)
    for _ in range(3):
        assert await forked_worker.tools.guards.read_leases() == {}
    assert len(guard.seen) == 1


async def test_a_guard_that_is_not_there_has_no_name() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    client = GuardClient(gone.url)
    with pytest.raises(NotGranted):
        await client.read_device()
    await client.close()


class Cutting(ScriptedExecutor):
    def __init__(self, cable: Proxy) -> None:
        super().__init__()
        self.stopping = False
        self.stops_worker = False
        self._cable = cable

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        self._cable.part()
        await asyncio.sleep(2 * WORKER_PROCESS_TICK_S)
        async for each in super().run(calls, epoch):
            yield each
        self.stopping = self.stops_worker


@pytest.fixture
def model_that_cuts(cable: Proxy) -> Cutting:
    return Cutting(cable)


@pytest.fixture
async def cut_off(
    database: Database, database_url: str, redis_url: str, guard: ChatServer, cable: Proxy, model_that_cuts: Cutting
) -> AsyncIterator[ForkedWorker]:
    guard.respond = lambda _: as_json({"device": DEVICE, "state": "open"})

    async def executors(_tools: Tools) -> Mapping[str, Executor]:
        return {"generate": model_that_cuts}

    url = redis_url.replace(f":{urlsplit(redis_url).port}", f":{cable.port}")
    settings = Settings(
        database_url=database_url,
        redis_url=url,
        guard_url=guard.url,
        workers=Workers(tick_s=WORKER_PROCESS_TICK_S, chunk=1, streams=1),
    )
    app = celery_app(url, 60)
    child = ForkedWorker(Lane.GENERATE, settings, app, executors, lambda: model_that_cuts.stopping)
    yield child
    await child.close()
    app.close()


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_whose_tick_ends_while_redis_is_away_goes_on_under_the_lease_that_it_believes(
    cut_off: ForkedWorker, database: Database
) -> None:
    await advance(database)
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 3


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_whose_tick_ends_while_redis_is_away_ends_with_its_lease(
    cut_off: ForkedWorker, database: Database, redis_url: str
) -> None:
    await advance(database)
    async with Redis.from_url(redis_url) as redis:
        (key,) = [key async for key in redis.scan_iter("mathrag:gpu:*:lease")]
        await redis.persist(key)  # a lease without a time to live cannot be believed
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 1
    assert await scalar(database, FREE) == 2


@pytest.mark.usefixtures("queued_calls")
async def test_a_worker_that_is_told_to_stop_while_redis_is_away_stops(
    cut_off: ForkedWorker, database: Database, model_that_cuts: Cutting
) -> None:
    await advance(database)
    model_that_cuts.stops_worker = True
    await cut_off.drain_lane()
    assert await scalar(database, ANSWERED) == 1
    assert await scalar(database, FREE) == 2


@pytest.mark.usefixtures("queued_calls")
async def test_what_a_guard_refused_is_not_believed_while_redis_is_away(
    guard: ChatServer, cable: Proxy, redis_url: str
) -> None:
    async with Redis.from_url(redis_url.replace(f":{urlsplit(redis_url).port}", f":{cable.port}")) as redis:
        guards = Guards(redis, [guard.url])
        held = await guards.read_leases()
        cable.part()
        assert held[DEVICE] is not None
        assert await guards.read_leases() == held
        guard.respond = lambda _: Reply(status=409)
        with pytest.raises(NotGranted):
            [_ async for _ in guards.run(DEVICE, 1, [])]
        assert await guards.read_leases() == {DEVICE: None}
        await guards.close()


# A worker's heartbeat is its own host's: containers share process ids, and a health check asks for its container.


class OnlyTheRoot(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def blocking_redis(redis_url: str) -> Iterator[BlockingRedis]:
    with BlockingRedis.from_url(redis_url) as client:
        yield client


def test_a_worker_without_a_heartbeat_is_not_well(redis_url: str) -> None:
    assert not heartbeats.is_alive(Lane.JUDGE, redis_url)
    assert not heartbeats.is_alive(Lane.JUDGE, "redis://127.0.0.1:1/0")


def test_a_worker_with_a_heartbeat_is_well(blocking_redis: BlockingRedis, redis_url: str) -> None:
    blocking_redis.set(heartbeats.key(Lane.JUDGE, os.getpid()), "alive")
    assert heartbeats.is_alive(Lane.JUDGE, redis_url)
    assert not heartbeats.is_alive(Lane.GENERATE, redis_url)


def test_workers_of_other_hosts_do_not_count(
    blocking_redis: BlockingRedis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking_redis.set(heartbeats.key(Lane.JUDGE, 7), "alive")
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert not heartbeats.is_alive(Lane.JUDGE, redis_url)
    blocking_redis.set(heartbeats.key(Lane.JUDGE, 7), "alive")
    assert len(blocking_redis.keys("mathrag:worker:judge:*")) == 2


def test_a_service_is_well_while_it_answers() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), OnlyTheRoot) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert probe.answers(f"{url}/")
        assert not probe.answers(f"{url}/nothing-here")
        server.shutdown()
    assert not probe.answers(f"{url}/")


@pytest.mark.anyio
async def test_a_worker_whose_heartbeat_has_lapsed_does_not_answer(
    blocking_redis: BlockingRedis, redis_url: str
) -> None:
    answers = make_heartbeat_answer_test(redis_url, Lane.JUDGE)
    blocking_redis.set(heartbeats.key(Lane.JUDGE, os.getpid()), "alive")
    assert await answers(os.getpid())
    blocking_redis.delete(heartbeats.key(Lane.JUDGE, os.getpid()))
    assert not await answers(os.getpid())
    assert not blocking_redis.keys("mathrag:worker:*")


@pytest.mark.anyio
async def test_a_worker_is_not_blamed_for_a_redis_that_takes_no_heartbeat(
    blocking_redis: BlockingRedis, redis_url: str
) -> None:
    blocking_redis.config_set("maxmemory", 1)
    try:
        assert await make_heartbeat_answer_test(redis_url, Lane.JUDGE)(os.getpid())
    finally:
        blocking_redis.config_set("maxmemory", 0)
