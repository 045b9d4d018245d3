"""Cancel: the job's samples end at once, nobody else is harmed, and nothing that was cancelled starts again."""

import asyncio
import uuid

import pytest
from sqlalchemy import text

from shared.errors import Conflict, NotFound
from shared.runtime import lifecycle
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel
from shared.runtime.queue import CLAIM, Claim, lanes_with_work
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
    repair,
    rows,
    sample_states,
    scalar,
    somebody_waits,
    submit_job,
    without_gold,
)

pytestmark = pytest.mark.anyio


async def running(database: Database, items: int = 2) -> uuid.UUID:
    await furnish(database, items)
    await without_gold(database)
    job = await submit_job(database, "closed-book")
    await advance(database)
    return job


async def claimed(database: Database, limit: int = 100) -> Claim:
    taken = await claim(database, limit)
    assert taken is not None
    return taken


async def test_cancelling_ends_the_samples_and_takes_the_calls_out_of_the_queue(database: Database) -> None:
    job = await running(database)
    await cancel(database, job)
    assert await sample_states(database) == [4, 4]
    assert await scalar(database, "SELECT count(*) FROM samples WHERE ended_at IS NULL") == 0
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await lanes_with_work(database) == set()
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]


async def test_cancelling_again_is_harmless(database: Database) -> None:
    job = await running(database)
    await cancel(database, job)
    ended = await rows(database, "SELECT id, ended_at FROM samples ORDER BY id")
    await cancel(database, job)
    await lifecycle.finish_due_jobs(database)
    await cancel(database, job)
    assert await job_states(database) == ["cancelled"]
    assert await rows(database, "SELECT id, ended_at FROM samples ORDER BY id") == ended


async def test_a_cancel_whose_process_died_half_way_is_finished_by_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await running(database)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=1)
        dying = asyncio.create_task(cancel(held, job))
        await held.reached.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    assert await scalar(database, "SELECT count(*) FROM queue") == 2
    assert await sample_states(database) == [4, 4]
    await cancel(database, job)
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_cancelled_is_final(database: Database) -> None:
    job = await running(database)
    await cancel(database, job)
    await repair(database)
    executor = ScriptedExecutor()
    await drain(database, executor)
    await repair(database)
    assert await job_states(database) == ["cancelled"]
    assert await sample_states(database) == [4, 4]
    assert not executor.ran


async def test_an_unknown_job_is_not_found(database: Database) -> None:
    unknown = uuid.uuid4()
    with pytest.raises(NotFound, match=str(unknown)):
        await cancel(database, unknown)


async def test_a_completed_job_cannot_be_cancelled(database: Database) -> None:
    await furnish(database, items=1)
    job = await submit_job(database, "closed-book")
    await drain(database, ScriptedExecutor())
    with pytest.raises(Conflict, match="has completed"):
        await cancel(database, job)
    assert await job_states(database) == ["completed"]
    assert await sample_states(database) == [2]


async def test_samples_that_have_ended_keep_their_outcome(database: Database) -> None:
    job = await running(database)
    await answer(database, await claimed(database, 1))
    await advance(database)
    await cancel(database, job)
    assert sorted(await sample_states(database)) == [2, 4]
    assert await scalar(database, "SELECT count(*) FROM outcomes") == 1


async def test_a_job_that_shares_calls_is_not_harmed(database: Database) -> None:
    job = await running(database, items=4)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claimed(database, 2)
    await cancel(database, job)
    assert await scalar(database, "SELECT count(*) FROM queue") == 4
    await answer(database, taken)
    executor = ScriptedExecutor()
    await drain(database, executor)
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled", "completed"]
    assert await sample_states(database) == [4] * 4 + [2] * 4
    assert len(executor.ran) == 2


async def test_a_job_is_cancelled_only_when_none_of_its_own_calls_is_claimed(database: Database) -> None:
    job = await running(database)
    taken = await claimed(database)
    await cancel(database, job)
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelling"]
    await answer(database, taken, calls=taken.calls[:1])
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelling"]
    await answer(database, taken, calls=taken.calls[1:])
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]


async def test_a_claim_that_is_not_committed_yet_holds_back_the_cancel(database: Database) -> None:
    job = await running(database)
    taking = {"lane": "generate", "model": await scalar(database, "SELECT max(model_id) FROM queue"), "n": 9}
    async with database.transaction() as claiming:
        await claiming.execute(CLAIM, {**taking, "token": uuid.uuid4(), "ttl": 60})
        await cancel(database, job)
        await lifecycle.finish_due_jobs(database)
        assert await job_states(database) == ["cancelling"]
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelling"]
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE queue SET token = NULL, claim_until = NULL"))
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_claimed_calls_that_another_job_waits_for_do_not_hold_back_a_cancel(database: Database) -> None:
    job = await running(database)
    await submit_job(database, "closed-book")
    await advance(database)
    await claimed(database)
    await cancel(database, job)
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled", "running"]


async def test_a_reply_that_arrives_after_the_cancel_is_kept_and_ends_nothing(database: Database) -> None:
    job = await running(database)
    taken = await claimed(database)
    await cancel(database, job)
    assert len(await answer(database, taken)) == 2
    assert await advance(database) == 0
    assert await sample_states(database) == [4, 4]
    await submit_job(database, "closed-book")
    await advance(database)
    assert await sample_states(database) == [4, 4, 2, 2]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 2


async def test_a_cancel_waits_for_the_advance_that_holds_the_samples_and_undoes_its_calls(database: Database) -> None:
    await furnish(database, items=2)
    await without_gold(database)
    job = await submit_job(database, "closed-book")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one)
        advancing = asyncio.create_task(Advancer(held).advance())
        await held.reached.wait()
        cancelling = asyncio.create_task(cancel(two, job))
        await somebody_waits(database)
        held.go.set()
        await asyncio.gather(advancing, cancelling)
    assert await scalar(database, "SELECT count(*) FROM calls") == 2
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await sample_states(database) == [4, 4]


async def test_an_advance_passes_over_the_samples_of_a_cancelled_job(database: Database) -> None:
    await furnish(database, items=2)
    job = await submit_job(database, "closed-book")
    await cancel(database, job)
    assert await advance(database) == 0
    assert await scalar(database, "SELECT count(*) FROM calls") == 0


async def test_a_job_cancelled_during_its_calibration_never_gets_samples(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database)
    await advance(database)
    await cancel(database, job)
    await drain(database, ScriptedExecutor())
    await repair(database)
    assert await job_states(database) == ["cancelled"]
    assert await rows(database, "SELECT kind, state FROM samples") == [("prepare", 4)]


async def test_a_cancel_that_meets_the_expansion_cancels_the_new_samples_too(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database)
    executor = ScriptedExecutor()
    await submit_job(database, "hybrid", rank=200)
    async with processes(database, 2) as [one, two]:
        while not await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'prepare' AND state = 2"):
            await advance(database)
            for role in ("dense", "sparse", "judge"):
                taken = await claim(database, role=role)
                if taken is not None:
                    await answer(database, taken)
        held = HeldDatabase(one, first=1)  # the look at what is due passes
        finishing = asyncio.create_task(lifecycle.finish_due_jobs(held))
        await held.reached.wait()
        cancelling = asyncio.create_task(cancel(two, job))
        await somebody_waits(database)
        held.go.set()
        await asyncio.gather(finishing, cancelling)
    first = (
        "SELECT kind, state, count(*) FROM samples WHERE job_id = (SELECT min(id) FROM jobs) GROUP BY 1, 2 ORDER BY 1"
    )
    assert await rows(database, first) == [("item", 4, 3), ("prepare", 2, 1)]
    await drain(database, executor)
    assert (await job_states(database))[1] == "completed"
