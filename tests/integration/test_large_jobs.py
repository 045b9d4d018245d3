"""Jobs of many samples are cancelled, ended and advanced in batches, and whatever else there is goes on between."""

import re

import anyio
import pytest
from sqlalchemy import text

from services.orchestrator.scheduling import routines
from services.orchestrator.scheduling.routines import POSTPONED_S, Finaliser
from shared.audit import check
from shared.calls import Lane
from shared.runtime import lifecycle
from shared.runtime import worker as worker_runtime
from shared.runtime.advance import NOTHING, AdvanceResult
from shared.runtime.lifecycle import cancel
from shared.storage.database import Database
from shared.storage.provenance import SAMPLES
from tests.faults.recording import Seen
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    answer,
    claim,
    furnish,
    job_states,
    rows,
    run_sql,
    scalar,
    submit_job,
    without_gold,
    worker,
)
from tests.integration.scheduling import Hands

pytestmark = pytest.mark.anyio

ENDED = "SELECT count(*) FROM samples WHERE job_id = 1 AND state = 4"


async def drained(database: Database, jobs: int = 2) -> None:
    await furnish(database, items=3)
    await without_gold(database)
    for _ in range(jobs):
        await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim(database)
    assert taken is not None
    await answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"] * jobs


@pytest.mark.fault("C6")
async def test_a_large_job_is_cancelled_in_batches_and_a_small_one_ends_between_them(
    database: Database, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen.describe("cancel of 60 samples in batches of 10, finalised in batches of 20, beside a job of 5 that has ended")
    monkeypatch.setattr(lifecycle, "CANCELLED_AT_ONCE", 10)
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", 20)
    await furnish(database, items=5)
    await without_gold(database)
    large = await submit_job(database, "closed-book", repeats=12)
    await advance(database)
    await submit_job(database, "closed-book")
    await run_sql(database, "UPDATE samples SET state = 3, failure = 'refused', ended_at = now() WHERE job_id = 2")
    await cancel(database, large)
    assert (await job_states(database), await scalar(database, ENDED)) == (["cancelling", "running"], 10)
    one = Finaliser(database)
    assert await one.run_once() == 0.0, "there is more to do at once"
    assert (await job_states(database), await scalar(database, ENDED)) == (["cancelling", "completed"], 20)
    passes = 1
    while await one.run_once() == 0.0:
        passes += 1
    assert await job_states(database) == ["cancelled", "completed"]
    assert await scalar(database, "SELECT count(*) FROM records WHERE job_id = 1") == 60
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await check(database, large) == []
    seen.figure("passes of the finaliser", passes)
    seen.note("the job that had ended is completed by the first pass, while the large one is still being cancelled")


@pytest.mark.parametrize("settings", ["", "SET enable_seqscan = off; SET enable_hashjoin = off"])
async def test_the_next_samples_to_chain_are_read_along_an_index(database: Database, settings: str) -> None:
    await furnish(database, items=100)
    await submit_job(database, "closed-book", repeats=20)
    await run_sql(database, "UPDATE samples SET state = 4, ended_at = now()")
    generic = re.sub(r":(job|ordinal|repeat|n)\b", lambda found: PLACES[found[1]], SAMPLES.text)
    async with database.engine.connect() as connection:
        connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
        for each in filter(None, ["SET plan_cache_mode = force_generic_plan", *settings.split("; ")]):
            await connection.execute(text(each))
        await connection.exec_driver_sql(f"PREPARE seal (bigint, integer, integer, bigint) AS {generic}")
        plan = "\n".join((await connection.exec_driver_sql("EXPLAIN EXECUTE seal(1, 5, 0, 200)")).scalars())
        await connection.exec_driver_sql("DEALLOCATE seal")
        await connection.exec_driver_sql("RESET ALL")  # the connection is used again
    assert re.search(rf"CTE batch\s+-> +Limit .*\s+-> +Index Scan using {KEY} on samples", plan), plan


KEY = "samples_job_id_kind_ordinal_repeat_key"
PLACES = {"job": "$1", "ordinal": "$2", "repeat": "$3", "n": "$4"}


async def test_a_job_that_cannot_be_finalised_holds_up_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    monkeypatch.setattr(routines, "time", hands)
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 9 WHERE job_id = 1 AND ordinal = 1")
    one = Finaliser(database)
    await one.run_once()
    assert await job_states(database) == ["finalizing", "completed"]
    reason, version = (await rows(database, "SELECT reason, version FROM jobs WHERE id = 1"))[0]
    assert str(reason).startswith("cannot be brought to its end, tried again: ValueError")
    await run_sql(database, "UPDATE samples SET state = 2 WHERE job_id = 1 AND ordinal = 1")
    hands.now += POSTPONED_S[0] - 0.1
    await one.run_once()
    assert await rows(database, "SELECT state, version FROM jobs WHERE id = 1") == [("finalizing", version)]
    hands.now += 0.2
    await one.run_once()
    assert await rows(database, "SELECT state, reason FROM jobs WHERE id = 1") == [("completed", None)]


async def test_a_worker_that_meets_such_a_job_goes_on(database: Database) -> None:
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 9 WHERE job_id = 1 AND ordinal = 1")
    assert await lifecycle.finish_due_jobs(database) == [2]
    assert await job_states(database) == ["finalizing", "completed"]


async def test_a_worker_leaves_large_jobs_to_the_orchestrator(database: Database) -> None:
    await drained(database, jobs=1)
    assert await lifecycle.finish_due_jobs(database, most=2) == []
    assert await job_states(database) == ["running"]
    assert await lifecycle.finish_due_jobs(database, most=3) == [1]


async def test_calls_are_claimed_while_the_samples_of_a_large_job_are_advanced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_runtime, "ADVANCE_FOR_S", 0.0)
    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    await advance(database)
    executor = ScriptedExecutor()
    busy = worker(database, Lane.GENERATE, executor)

    class Endless:
        async def advance(self) -> AdvanceResult:
            return NOTHING if executor.ran else AdvanceResult(200, frozenset(), frozenset())

    busy.advancer = Endless()  # type: ignore[assignment]
    with anyio.fail_after(60):
        await busy.drain()
    assert len(executor.ran) == 1
