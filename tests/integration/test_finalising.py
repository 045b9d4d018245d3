"""Finalising: once, in order, wherever it was interrupted, and only when nothing is left to do."""

import asyncio

import pytest

from shared.audit import check
from shared.replies import Failure, FailureKind
from shared.runtime import lifecycle
from shared.runtime.lifecycle import EndStep, cancel, finalise, finish_due_jobs, list_due_jobs
from shared.storage.database import Database
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    advance,
    answer,
    claim,
    drain,
    furnish,
    job_states,
    processes,
    rows,
    run_sql,
    scalar,
    submit_job,
)
from tests.integration.test_audit import staged

pytestmark = pytest.mark.anyio

CHAIN = "SELECT r.seq, s.ordinal, s.repeat FROM records r JOIN samples s ON s.id = r.sample_id ORDER BY r.seq"


async def drained(database: Database, items: int = 5, repeats: int = 1) -> int:
    await furnish(database, items=items)
    await run_sql(database, "UPDATE items SET gold = NULL")
    await submit_job(database, "closed-book", repeats=repeats)
    await advance(database)
    taken = await claim(database)
    assert taken is not None
    await answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"]
    return await scalar(database, "SELECT id FROM jobs")  # type: ignore[return-value]


async def finish_whole(database: Database) -> list[int]:
    ended = []
    while await list_due_jobs(database):
        ended += await finish_due_jobs(database)
    return ended


async def test_records_are_chained_in_sample_order(database: Database) -> None:
    await drained(database, items=3, repeats=2)
    await finish_due_jobs(database)
    assert await rows(database, CHAIN) == [(2 * item + r, item, r) for item in range(3) for r in range(2)]
    assert await rows(database, "SELECT state, chain = (SELECT hash FROM records WHERE seq = 5) FROM jobs") == [
        ("completed", True)
    ]


async def test_a_job_is_seen_finalizing_before_it_is_completed(database: Database) -> None:
    await drained(database)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=2)  # what is due, and the step to finalizing
        finishing = asyncio.create_task(finish_due_jobs(held))
        await held.reached.wait()
        assert await job_states(database) == ["finalizing"]
        assert await scalar(database, "SELECT count(*) FROM records") == 0
        held.go.set()
        assert await finishing == [1]
    assert await job_states(database) == ["completed"]


async def test_one_process_at_a_time_chains_a_job(database: Database) -> None:
    job = await drained(database)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=2)
        finishing = asyncio.create_task(finish_due_jobs(held))
        await held.reached.wait()
        assert await finish_due_jobs(database) == []
        assert await finalise(database, job) is EndStep.WAITS
        held.go.set()
        assert await finishing == [job]
    assert await scalar(database, "SELECT count(*) FROM records") == 5


async def test_another_process_goes_on_where_one_was_killed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await drained(database, items=7)
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", 2)
    assert await finish_due_jobs(database) == []
    assert await finish_due_jobs(database) == []
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=1)
        finishing = asyncio.create_task(finish_due_jobs(held))
        await held.reached.wait()
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)
    assert await job_states(database) == ["finalizing"]
    assert await scalar(database, "SELECT count(*) FROM records") == 4
    assert await finish_whole(database) == [job]
    assert await job_states(database) == ["completed"]
    assert [seq for seq, _, _ in await rows(database, CHAIN)] == list(range(7))
    public = await scalar(database, "SELECT public_id FROM jobs")
    assert {each.invariant for each in await check(database, public)} <= {"I5"}  # type: ignore[arg-type]  # no epochs here
    assert await finalise(database, job) is EndStep.WAITS


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 6])
async def test_the_chain_does_not_depend_on_the_batches(
    database: Database, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", batch)
    job = await drained(database, items=4)
    assert await finish_whole(database) == [job]
    assert await job_states(database) == ["completed"]
    hashes = [row[0] for row in await rows(database, "SELECT hash FROM records ORDER BY seq")]
    befores = [row[0] for row in await rows(database, "SELECT previous FROM records ORDER BY seq")]
    assert befores[1:] == hashes[:-1]
    assert await scalar(database, "SELECT chain FROM jobs") == hashes[-1]


async def test_a_job_with_a_live_sample_is_not_finalised(database: Database) -> None:
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 1, ended_at = NULL WHERE id = (SELECT min(id) FROM samples)")
    assert await finish_due_jobs(database) == []
    assert await job_states(database) == ["running"]


async def test_a_cancelled_job_chains_what_had_ended(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim(database)
    assert taken is not None
    await answer(database, taken, calls=taken.calls[:2])
    await cancel(database, job)
    await answer(database, taken, calls=taken.calls[2:])
    await finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]
    assert await scalar(database, "SELECT count(*) FROM records") == 3
    assert {each.invariant for each in await check(database, job)} <= {"I5"}


async def test_a_reply_that_comes_after_the_cancel_breaks_no_chain(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database, "closed-book")
    await submit_job(database, "closed-book", name="other")
    await advance(database)
    await cancel(database, job)
    await finish_due_jobs(database)
    assert await job_states(database) == ["cancelled", "running"]
    await staged(database)
    assert await job_states(database) == ["cancelled", "completed"]
    assert await check(database, job) == []


async def test_a_job_that_failed_in_preparation_has_an_empty_chain(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    unrated = Failure(kind=FailureKind.UNPARSED, detail="no rating")
    executor = ScriptedExecutor()
    by_rule = executor.answer
    executor.answer = lambda request: unrated if request.role == "judge" else by_rule(request)
    await staged(database, executor)
    assert await rows(database, "SELECT state, octet_length(chain) FROM jobs") == [("failed", 32)]
    assert await scalar(database, "SELECT count(*) FROM records") == 0
    assert await check(database, job) == []


async def test_a_look_at_the_ends_costs_one_statement_while_none_is_due(database: Database) -> None:
    await furnish(database)
    await submit_job(database, "closed-book")
    await advance(database)

    class Counting(Database):
        asked = 0

        def __init__(self) -> None:
            self.engine = database.engine

        def statement(self):  # type: ignore[no-untyped-def]
            self.asked += 1
            return super().statement()

        def transaction(self):  # type: ignore[no-untyped-def]
            raise AssertionError("no transaction is needed")

    counting = Counting()
    assert await finish_due_jobs(counting) == []
    assert counting.asked == 1
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed"]
