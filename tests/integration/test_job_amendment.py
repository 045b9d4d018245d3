"""What may change about a job after it was accepted, and what that does to its calls."""

import asyncio
import uuid

import pytest

from shared.errors import NotFound, PreconditionFailed
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import Amendment, amend, pause, resume
from shared.storage.database import Database
from tests.integration.scene import advance, claim, furnish, processes, rows, scalar, submit_job, without_gold

pytestmark = pytest.mark.anyio

RANKS = "SELECT place >> 40 AS rank, count(*) FROM queue GROUP BY rank ORDER BY rank"


async def running(database: Database, items: int = 2, **fields: object) -> uuid.UUID:
    await furnish(database, items)
    await without_gold(database)
    job = await submit_job(database, "closed-book", **fields)
    await advance(database)
    return job


async def test_a_new_rank_counts_for_the_calls_in_the_queue(database: Database) -> None:
    job = await running(database)
    await amend(database, job, Amendment(rank=3))
    assert await rows(database, RANKS) == [(3, 2)]
    assert await rows(database, "SELECT name, rank, version FROM jobs") == [("a-job", 3, 3)]


async def test_a_call_is_as_urgent_as_the_most_urgent_job_that_waits_for_it(database: Database) -> None:
    job = await running(database, rank=10)
    await submit_job(database, "closed-book", rank=50)
    await advance(database)
    await amend(database, job, Amendment(rank=90))
    assert await rows(database, RANKS) == [(50, 2)]
    await amend(database, job, Amendment(rank=20))
    assert await rows(database, RANKS) == [(20, 2)]


async def test_a_call_that_is_claimed_keeps_its_rank(database: Database) -> None:
    job = await running(database)
    await claim(database, 1)
    await amend(database, job, Amendment(rank=1))
    assert await rows(database, RANKS) == [(1, 1), (100, 1)]


async def test_a_paused_job_comes_back_with_its_new_rank(database: Database) -> None:
    job = await running(database)
    await pause(database, job)
    await amend(database, job, Amendment(rank=1))
    await resume(database, job)
    assert await rows(database, RANKS) == [(1, 2)]


async def test_what_is_not_named_stays(database: Database) -> None:
    job = await running(database, metadata={"a": "1"})
    await amend(database, job, Amendment(name="other"))
    assert await rows(database, "SELECT name, metadata ->> 'a' FROM jobs") == [("other", "1")]
    await amend(database, job, Amendment(metadata={"b": "2"}))
    assert await rows(database, "SELECT name, metadata ->> 'a', metadata ->> 'b' FROM jobs") == [("other", None, "2")]
    events = await rows(database, "SELECT version, state FROM job_events ORDER BY version")
    assert events == [(1, "preparing"), (2, "running"), (3, "running"), (4, "running")]


async def test_an_ended_job_can_still_be_renamed(database: Database) -> None:
    await furnish(database, items=1)
    job = await submit_job(database, "closed-book")
    async with database.transaction() as connection:
        await connection.exec_driver_sql("UPDATE jobs SET state = 'completed', ended_at = now()")
    await amend(database, job, Amendment(name="final", rank=5))
    assert await rows(database, "SELECT name, state FROM jobs") == [("final", "completed")]


async def test_of_two_changes_to_the_same_version_one_is_refused(database: Database) -> None:
    job = await running(database)
    async with processes(database, 2) as others:
        changes = [amend(each, job, Amendment(rank=n), {2}) for n, each in enumerate(others)]
        done = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(each) for each in done if each] == [PreconditionFailed]
    assert await scalar(database, "SELECT version FROM jobs") == 3
    with pytest.raises(NotFound):
        await amend(database, uuid.uuid4(), Amendment(rank=1))


async def test_samples_that_advance_after_the_change_queue_at_the_new_rank(database: Database) -> None:
    await furnish(database, items=4)
    await without_gold(database)
    job = await submit_job(database, "closed-book")
    advancer = Advancer(database)
    await advancer.advance(1)
    await amend(database, job, Amendment(rank=7))
    await advancer.advance(10)
    assert await rows(database, RANKS) == [(7, 4)]
