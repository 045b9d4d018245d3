"""Parking: calls that nobody waits for leave the queue, and whoever comes to want one brings it back."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.runtime import advance as advance_runtime
from shared.runtime import queue
from shared.runtime.advance import Advancer
from shared.runtime.queue import Claim, lapse_expired
from shared.storage.database import Database
from tests.integration.scene import (
    HeldDatabase,
    advance,
    answer,
    claim,
    furnish,
    job_states,
    let_claims_expire,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    submit_job,
    without_gold,
)

pytestmark = pytest.mark.anyio

ORPHANS = """
    SELECT count(*) FROM calls c
    WHERE c.id NOT IN (SELECT call_id FROM queue UNION SELECT call_id FROM attempts WHERE accepted)"""
MADE = """
    SELECT s.job_id - (SELECT min(id) FROM jobs), t.created, count(*) FROM steps t JOIN samples s ON s.id = t.sample_id
    GROUP BY 1, 2 ORDER BY 1"""


async def pending(database: Database, items: int = 1) -> None:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await advance(database)


async def claimed(database: Database, limit: int = 100) -> Claim:
    taken = await claim(database, limit)
    assert taken is not None
    return taken


async def lose_interest(database: Database) -> None:
    await run_sql(database, "UPDATE jobs SET state = 'cancelling'")
    await run_sql(database, "UPDATE samples SET state = 4 WHERE state IN (0, 1)")


async def forgotten(_database: Database, _calls: Sequence[int]) -> list[int]:
    return []


async def test_claimed_calls_that_nobody_wants_are_parked(database: Database) -> None:
    await pending(database, items=3)
    await lose_interest(database)
    assert await claim(database) is None
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await scalar(database, ORPHANS) == 3
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0


async def test_only_the_unwanted_calls_of_a_chunk_are_parked(database: Database) -> None:
    await pending(database, items=3)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE ordinal = 1")
    assert len((await claimed(database)).calls) == 2
    assert await scalar(database, ORPHANS) == 1


async def test_a_claim_that_parked_everything_looks_for_more(database: Database) -> None:
    await pending(database, items=4)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE ordinal IN (0, 1, 2)")
    taken = await claimed(database, 1)
    assert len(taken.calls) == 1
    await answer(database, taken)
    assert sorted(await sample_states(database)) == [0, 4, 4, 4]


async def claim_that_parks_while_a_waiter_comes(database: Database) -> Claim | None:
    await pending(database)
    await lose_interest(database)
    await submit_job(database, "closed-book")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one)
        claiming_it = asyncio.create_task(claim(held))
        await held.reached.wait()
        assert (await Advancer(two).advance()).samples == 1
        held.go.set()
        return await claiming_it


async def test_a_waiter_that_commits_while_its_call_is_being_parked_gets_it(database: Database) -> None:
    taken = await claim_that_parks_while_a_waiter_comes(database)
    assert taken is not None
    await answer(database, taken)
    await advance(database)
    assert await sample_states(database) == [4, 2]


async def test_parking_without_a_look_afterwards_would_lose_the_call(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "revive_calls", forgotten)
    assert await claim_that_parks_while_a_waiter_comes(database) is None
    assert await scalar(database, ORPHANS) == 1
    assert await sample_states(database) == [4, 1]


async def waiter_that_commits_after_the_parking(database: Database) -> None:
    await pending(database)
    await lose_interest(database)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other)
        waiting = asyncio.create_task(Advancer(held).advance())
        await held.reached.wait()
        assert await claim(database) is None
        held.go.set()
        await waiting


async def test_a_waiter_that_commits_after_its_call_was_parked_brings_it_back(database: Database) -> None:
    await waiter_that_commits_after_the_parking(database)
    assert await scalar(database, ORPHANS) == 0
    assert len((await claimed(database)).calls) == 1


async def test_a_waiter_that_did_not_look_would_wait_for_a_parked_call(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance_runtime, "revive_calls", forgotten)
    await waiter_that_commits_after_the_parking(database)
    assert await scalar(database, ORPHANS) == 1
    assert await sample_states(database) == [4, 1]


async def test_a_later_job_revives_orphans_and_counts_them_as_its_own(database: Database) -> None:
    await pending(database, items=2)
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, MADE) == [(0, True, 2), (1, True, 2)]
    await answer(database, await claimed(database))
    await advance(database)
    assert sorted(await sample_states(database)) == [2, 2, 4, 4]


async def test_calls_that_are_in_the_queue_or_answered_count_as_reused(database: Database) -> None:
    await pending(database, items=2)
    await answer(database, await claimed(database, 1))
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, MADE) == [(0, True, 2), (1, False, 2)]


async def test_a_call_that_is_answered_while_a_job_attaches_counts_as_reused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pending(database)
    taken, real = await claimed(database), advance_runtime.record

    async def record_after_the_reply(*arguments: object) -> object:
        await answer(database, taken)
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(advance_runtime, "record", record_after_the_reply)
    await submit_job(database, "closed-book")
    async with processes(database, 1) as [other]:
        await Advancer(other).advance()
    assert await rows(database, "SELECT created FROM steps ORDER BY sample_id") == [(True,), (False,)]


async def test_lapses_survive_parking(database: Database) -> None:
    await pending(database)
    for _ in range(2):
        await claimed(database)
        await let_claims_expire(database)
        await lapse_expired(database, "sweeper")
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT lapses, token FROM queue") == [(2, None)]
    taken = await claimed(database)
    await let_claims_expire(database)
    assert await lapse_expired(database, "sweeper") == [taken.calls[0].id]
    await advance(database)
    assert await rows(database, "SELECT failure FROM samples WHERE state = 3") == [("poisoned",)]


async def test_parking_a_call_that_another_live_sample_wants_does_not_happen(database: Database) -> None:
    await pending(database)
    await submit_job(database, "closed-book")
    await advance(database)
    await run_sql(database, "UPDATE samples SET state = 4 WHERE job_id = (SELECT min(id) FROM jobs)")
    await run_sql(database, "UPDATE jobs SET state = 'cancelling' WHERE id = (SELECT min(id) FROM jobs)")
    await answer(database, await claimed(database))
    await advance(database)
    assert await sample_states(database) == [4, 2]
    assert await job_states(database) == ["cancelling", "running"]


async def test_a_revived_call_has_the_rank_of_the_job_that_wants_it(database: Database) -> None:
    await pending(database)
    await lose_interest(database)
    assert await claim(database) is None
    await submit_job(database, "closed-book", rank=10)
    await advance(database)
    assert await scalar(database, "SELECT place >> 40 FROM queue") == 10
