"""The worker: whatever happens to a chunk, each of its calls is answered, given back, or charged."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy.exc import OperationalError

from shared.calls import Lane
from shared.lease.lease import DeviceLease, NotGranted, Phase, StreamBroken
from shared.runtime import worker as worker_runtime
from shared.runtime.queue import AnsweredCall, ClaimedCall, Claims, lapse_expired
from shared.runtime.worker import LaneWorker, Lapse, Release
from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration.scene import (
    Leases,
    ScriptedExecutor,
    SilentTicker,
    advance,
    answered,
    furnish,
    job_states,
    let_claims_expire,
    let_pauses_pass,
    model,
    rows,
    sample_states,
    scalar,
    submit_job,
    without_gold,
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


async def pending(database: Database, items: int = 4) -> None:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await advance(database)


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
    await pending(database)
    # Refused for good: on a busy machine the pause of released calls is over before the worker looks again.
    await generator(database, Refusing(NotGranted("another epoch"), 0, times=1000)).drain()
    assert await queue(database) == [(False, 0, 0)] * 4
    assert await scalar(database, "SELECT count(*) FROM queue WHERE not_before IS NULL") == 0
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0


async def test_a_chunk_that_broke_off_charges_what_was_not_answered(database: Database) -> None:
    await pending(database)
    executor = Refusing(StreamBroken("gone"), 2)
    await generator(database, executor).drain()
    assert await rows(database, "SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("lapsed", 2),
        ("value", 4),
    ]
    assert await sample_states(database) == [2] * 4
    assert sorted(executor.ran.values()) == [1, 1, 1, 2]


async def test_suspects_that_a_worker_made_go_out_one_by_one(database: Database) -> None:
    await pending(database)
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
    await pending(database, items=3)

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
    await pending(database)
    generate = await model(database)
    for lease in (
        DeviceLease(epoch=1, phase=Phase.OPEN, models=(await model(database, "a-judge"),)),
        DeviceLease(epoch=1, phase=Phase.DRAINING, models=(generate,)),
        DeviceLease(epoch=1, phase=Phase.LOADING, models=(generate,)),
        DeviceLease(epoch=1, phase=Phase.QUARANTINED, models=(generate,)),
    ):
        executor = ScriptedExecutor()
        await generator(database, executor, lease).drain()
        assert not executor.ran
        assert await queue(database) == [(False, 0, 0)] * 4
    nobody = worker(database, Lane.GENERATE, executor)
    nobody.guards = Leases(None)  # type: ignore[assignment]
    await nobody.drain()
    assert not executor.ran


async def test_leased_calls_go_out_with_the_epoch_of_the_lease(database: Database) -> None:
    await pending(database, items=2)
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
    await pending(database, items=2)

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
    await pending(database, items=4)
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
    await pending(database, items=3)
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
    await pending(database, items=1)
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
    await pending(database, items=8)
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
    await pending(database, items=2)
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
    seen.note("that call failed after three tries, and its sample with it; the other seven were answered at once")
