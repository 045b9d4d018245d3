"""The ways in which a waiting sample could be forgotten, forced one by one, without the sweeper that would find it.

Each schedule is run twice: with the runtime as it is, and with the mistake that the schedule is about, which must
get stuck; otherwise the schedule proves nothing.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.calls import Lane
from shared.pipelines.binding import Bound
from shared.runtime import advance as advance_runtime
from shared.runtime import queue
from shared.runtime.advance import Advancer, NewStep, record
from shared.runtime.queue import AnsweredCall, Claim, ClaimedCall, to_columns
from shared.runtime.worker import Lapse, Release
from shared.storage.database import Database
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    advance,
    answer,
    answered,
    claim,
    claim_some,
    commit_while_waited_for,
    furnish,
    install,
    job_states,
    model,
    processes,
    queue_job,
    rows,
    sample_states,
    scalar,
    somebody_waits,
    stuck,
    submit_job,
    two_questions,
    without_gold,
    worker,
)

pytestmark = pytest.mark.anyio

READY, WAITING = 0, 1


# 1. A sample attaches to a call that is answered while the sample's own transaction is still open.


async def attach_while_it_is_answered(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, before_recording: bool
) -> None:
    await queue_job(database, 1)
    taken = await claim_some(database)

    async def record_with_a_gap(*arguments: object) -> object:
        if before_recording:
            await answer(database, taken)
        written = await record(*arguments)  # type: ignore[arg-type]
        if not before_recording:
            await answer(database, taken)
        return written

    monkeypatch.setattr(advance_runtime, "record", record_with_a_gap)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        await Advancer(other).advance(limit=200)
    monkeypatch.setattr(advance_runtime, "record", record)


@pytest.mark.parametrize("before_recording", [True, False])
async def test_a_reply_between_attaching_and_commit_wakes_the_one_that_attached(
    database: Database, monkeypatch: pytest.MonkeyPatch, before_recording: bool
) -> None:
    await attach_while_it_is_answered(database, monkeypatch, before_recording=before_recording)
    assert await stuck(database) == []
    await advance(database)
    assert await sample_states(database) == [2, 2]


@pytest.mark.parametrize("before_recording", [True, False])
async def test_attaching_without_a_look_would_wait_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch, before_recording: bool
) -> None:
    async def forgotten(_database: Database, _samples: Sequence[int]) -> list[int]:
        return []

    monkeypatch.setattr(advance_runtime, "mark_ready_among", forgotten)
    await attach_while_it_is_answered(database, monkeypatch, before_recording=before_recording)
    assert len(await stuck(database)) == 1
    await advance(database)
    assert sorted(await sample_states(database)) == [WAITING, 2]


# 2. A look that must wait for the lock of a sample.


async def waiting_for_two(database: Database, monkeypatch: pytest.MonkeyPatch) -> tuple[Claim, Claim]:
    await furnish(database, items=1)
    await without_gold(database)
    install(monkeypatch, "two-questions", two_questions)
    await submit_job(database, "two-questions")
    await advance(database)
    first, second = await claim(database, 1), await claim(database, 1, who="worker-2")
    assert first is not None
    assert second is not None
    return first, second


async def accept(connection: AsyncConnection, taken: Claim) -> None:
    answers = [answered(call) for call in taken.calls]
    values = {"tokens": [taken.token] * len(answers), "worker": "worker-1", **to_columns(answers)}
    await connection.execute(queue.ACCEPT, values)


async def a_look_that_waits_for_the_sample(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await waiting_for_two(database, monkeypatch)
    await answer(database, first)
    async with processes(database, 1) as [other]:
        async with database.transaction() as connection:
            await connection.execute(text("SELECT FROM samples FOR NO KEY UPDATE"))
            answering = asyncio.create_task(answer(other, second))
            await somebody_waits(database)
        await answering


async def test_a_look_that_had_to_wait_wakes_the_sample(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_look_that_waits_for_the_sample(database, monkeypatch)
    assert await stuck(database) == []
    assert await sample_states(database) == [READY]


async def test_a_look_that_had_to_wait_does_not_decide_about_a_later_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await waiting_for_two(database, monkeypatch)
    await answer(database, first)
    async with processes(database, 1) as [other]:
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE samples SET position = position + 1"))
            answering = asyncio.create_task(answer(other, second))
            await somebody_waits(database)
        await answering
    assert await sample_states(database) == [WAITING]


async def test_a_look_locks_no_sample_that_lacks_a_reply(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = await waiting_for_two(database, monkeypatch)
    async with processes(database, 1) as [other], database.transaction() as connection:
        await connection.execute(text("SELECT FROM samples FOR NO KEY UPDATE"))
        await answer(other, first)
    assert await sample_states(database) == [WAITING]


# 3. Two replies of one sample, neither of which sees the other before both are committed.


async def test_two_replies_that_commit_before_either_looks_wake_their_sample_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await waiting_for_two(database, monkeypatch)
    looks: list[list[int]] = []
    both = asyncio.Barrier(2)

    look = queue.mark_ready_samples

    async def look_after_both(database: Database, calls: Sequence[int]) -> list[int]:
        await both.wait()
        looks.append(await look(database, calls))
        return looks[-1]

    monkeypatch.setattr(queue, "mark_ready_samples", look_after_both)
    async with processes(database, 2) as others:
        held = [HeldDatabase(other) for other in others]
        answering = [
            asyncio.create_task(answer(process, taken)) for process, taken in zip(held, (first, second), strict=True)
        ]
        for process in held:
            await process.reached.wait()
        for process in held:
            process.go.set()
        await asyncio.gather(*answering)
    assert await stuck(database) == []
    assert await sample_states(database) == [READY]
    assert sorted(map(len, looks)) == [0, 1]


@pytest.mark.parametrize("late", [0, 1])
async def test_the_reply_that_commits_last_wakes_the_sample(
    database: Database, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    claims = await waiting_for_two(database, monkeypatch)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other)
        answering = asyncio.create_task(answer(held, claims[late]))
        await held.reached.wait()
        await answer(database, claims[1 - late])
        assert await sample_states(database) == [WAITING]
        held.go.set()
        await answering
    assert await stuck(database) == []
    assert await sample_states(database) == [READY]


async def test_deciding_inside_the_reply_transaction_would_lose_both(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = await waiting_for_two(database, monkeypatch)
    sample = await scalar(database, "SELECT id FROM samples")

    async def reply_and_decide(process: Database, taken: Claim) -> None:
        async with process.transaction() as connection:
            await accept(connection, taken)
            await connection.execute(queue.LOOK_AT, {"ids": [sample]})

    async with processes(database, 2) as others:
        held = [HeldDatabase(other) for other in others]
        replying = [
            asyncio.create_task(reply_and_decide(process, taken)) for process, taken in zip(held, claims, strict=True)
        ]
        for process in held:
            await process.reached.wait()
        for process in held:
            process.go.set()
        await asyncio.gather(*replying)
    assert await stuck(database) == [sample]


async def test_two_advances_of_one_sample_record_its_steps_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(database, items=1)
    install(monkeypatch, "two-questions", two_questions)
    await submit_job(database, "two-questions")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one)
        advancing_first = asyncio.create_task(Advancer(held).advance())
        await held.reached.wait()
        assert (await Advancer(two).advance()).samples == 0
        held.go.set()
        assert (await advancing_first).samples == 1
        assert (await Advancer(two).advance()).samples == 0
    assert await rows(database, "SELECT position, slot, created FROM steps ORDER BY slot") == [
        (0, 0, True),
        (0, 1, True),
    ]


async def test_two_jobs_that_ask_at_the_same_moment_share_one_call(database: Database) -> None:
    await furnish(database, items=1)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await submit_job(database, "closed-book")
    first, second = await commit_while_waited_for(
        database, lambda held: Advancer(held).advance(limit=1), lambda two: Advancer(two).advance(limit=1)
    )
    assert [first.samples, second.samples] == [1, 1]
    assert await scalar(database, "SELECT count(*) FROM calls") == 1
    assert sorted(await rows(database, "SELECT created FROM steps")) == [(False,), (True,)]
    taken = await claim_some(database)
    await answer(database, taken)
    assert await sample_states(database) == [READY, READY]


# Deadlocks: two advances insert the same keys.

KEYS = {name: name.encode() * 32 for name in "abm"}


def batch_of(sample: int, keys: str, model_id: int) -> list[object]:
    steps = [
        NewStep(0, slot, Bound(key=KEYS[key], body=b"", role="generate", lane=Lane.GENERATE, model_id=model_id))
        for slot, key in enumerate(keys)
    ]
    return [SimpleNamespace(sample_id=sample, place=0, steps=steps, waits=False)]


async def insert_against_each_other(database: Database, asked: tuple[str, str]) -> None:
    await furnish(database, items=2)
    await submit_job(database, "closed-book")
    samples = [sample for (sample,) in await rows(database, "SELECT id FROM samples ORDER BY id")]
    generator = await model(database)

    async def insert(process: Database, sample: int, keys: str) -> None:
        async with process.transaction() as connection:
            await record(connection, batch_of(sample, keys, generator), {})  # type: ignore[arg-type]

    [blocker] = batch_of(samples[0], "m", generator)
    async with (
        processes(database, 3) as [holder, one, two],
        asyncio.TaskGroup() as group,
        holder.engine.connect() as connection,
    ):
        await advance_runtime.insert_calls(connection, [(100, blocker.steps[0].bound)])  # type: ignore[attr-defined]
        group.create_task(insert(one, samples[0], asked[0]))
        await somebody_waits(database)
        group.create_task(insert(two, samples[1], asked[1]))
        await somebody_waits(database, 2)
        await connection.rollback()


@pytest.mark.parametrize("asked", [("amb", "ba"), ("mba", "ab")])
async def test_advances_that_ask_for_the_same_calls_in_any_order_do_not_deadlock(
    database: Database, asked: tuple[str, str]
) -> None:
    await insert_against_each_other(database, asked)
    assert await scalar(database, "SELECT count(*) FROM calls") == 3
    assert await scalar(database, "SELECT count(*) FROM steps") == 5


async def test_unsorted_keys_would_deadlock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    insert_sorted = advance_runtime.insert_calls

    async def insert_unsorted(connection: AsyncConnection, wanted: Sequence[tuple[int, Bound]]) -> dict[bytes, int]:
        order = [KEYS[key] for key in ("amb" if len(wanted) == 3 else "bam")]
        return await insert_sorted(connection, sorted(wanted, key=lambda each: order.index(each[1].key)))

    monkeypatch.setattr(advance_runtime, "insert_calls", insert_unsorted)
    with pytest.raises(ExceptionGroup) as raised:
        await insert_against_each_other(database, ("amb", "ba"))
    [error] = raised.value.exceptions
    assert isinstance(error, DBAPIError)
    assert "deadlock detected" in str(error)


# Everything at once.


class Shuffling(ScriptedExecutor):
    def __init__(self, random_: random.Random) -> None:
        super().__init__()
        self._random = random_

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        for call in self._random.sample(calls, len(calls)):
            await asyncio.sleep(self._random.random() / 500)
            async for each in super().run([call], epoch):
                yield each


class Bells:
    def __init__(self) -> None:
        self._bells: dict[Lane, list[asyncio.Event]] = {lane: [] for lane in Lane}
        self._busy = 0
        self.quiet = asyncio.Event()
        """Everybody waits, and nobody has been woken."""

    async def tick(self, lane: Lane) -> None:
        for bell in self._bells[lane]:
            bell.set()

    async def clear_tick(self, lane: Lane) -> None:
        """A tick has left the queue."""

    async def serve(self, lane: Lane, drain: Callable[[], Awaitable[None]]) -> None:
        bell = asyncio.Event()
        bell.set()
        self._bells[lane].append(bell)
        self._busy += 1
        while True:
            bell.clear()
            await drain()
            self._busy -= 1
            if not self._busy and not any(bell.is_set() for bells in self._bells.values() for bell in bells):
                self.quiet.set()
            await bell.wait()
            self._busy += 1


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_crowd_of_workers_forgets_no_sample_and_runs_no_call_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random_ = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    await furnish(database, items=75)
    for _ in range(2):
        await submit_job(database, params={"gate": {"items": 3, "max_documents": 4}, "candidates": 4})

    def with_gap(function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def gapped(*arguments: object) -> object:
            await asyncio.sleep(random_.random() / 200)
            result = await function(*arguments)
            await asyncio.sleep(random_.random() / 200)
            return result

        return gapped

    monkeypatch.setattr(advance_runtime, "record", with_gap(record))
    monkeypatch.setattr(queue, "mark_ready_samples", with_gap(queue.mark_ready_samples))
    bells, executors = Bells(), [Shuffling(random_) for _ in range(5)]
    async with processes(database, 5) as others:
        serving = []
        lanes = [Lane.JUDGE, Lane.JUDGE, Lane.JUDGE, Lane.GENERATE, Lane.GENERATE]
        for other, lane, executor in zip(others, lanes, executors, strict=True):
            one = worker(other, lane, executor, chunk=6)
            one.ticker = bells  # type: ignore[assignment]
            serving.append(asyncio.create_task(bells.serve(lane, one.drain)))
        quiet = asyncio.create_task(bells.quiet.wait())
        async with asyncio.timeout(240):
            await asyncio.wait({quiet, *serving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (quiet, *serving):
            task.cancel()
        ends = await asyncio.gather(*serving, return_exceptions=True)
        assert [end for end in ends if not isinstance(end, asyncio.CancelledError)] == []
    assert await stuck(database) == []
    assert await job_states(database) == ["completed", "completed"]
    assert Counter(await sample_states(database)) == {2: 152}
    ran = sum((executor.ran for executor in executors), Counter[bytes]())
    assert set(ran.values()) == {1}
    assert await scalar(database, "SELECT count(*) FROM attempts") == len(ran)
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
