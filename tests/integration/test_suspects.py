"""Suspects: a call under which a claim lapsed runs alone, and three times make it poison, for its own sample only."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from shared.calls import Request
from shared.replies import Failure, FailureKind
from shared.runtime.queue import LAPSES, AnsweredCall, Claim, ClaimedCall, Claims, lapse, lapse_expired
from shared.runtime.worker import Lapse, Release
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
    let_claims_expire,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    submit_job,
    without_gold,
)

pytestmark = pytest.mark.anyio


async def pending(database: Database, items: int) -> None:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await advance(database)


async def claimed(database: Database, limit: int = 100) -> Claim:
    taken = await claim(database, limit)
    assert taken is not None
    return taken


async def suspect(database: Database, count: int) -> list[int]:
    taken = await claimed(database, count)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    return [call.id for call in taken.calls]


async def test_an_expired_claim_makes_suspects_and_says_so(database: Database) -> None:
    await pending(database, items=2)
    taken = await claimed(database)
    await let_claims_expire(database)
    assert await lapse_expired(database, "sweeper") == []
    assert await rows(database, "SELECT lapses, token, claim_until FROM queue") == [(1, None, None)] * 2
    assert (
        await rows(database, "SELECT accepted, outcome, token, worker FROM attempts")
        == [(False, "lapsed", taken.token, "sweeper")] * 2
    )
    assert await sample_states(database) == [1, 1]


async def test_a_claim_within_its_time_does_not_lapse(database: Database) -> None:
    await pending(database, items=2)
    await claimed(database, 1)
    assert await lapse_expired(database, "sweeper") == []
    assert await rows(database, "SELECT lapses FROM queue") == [(0,), (0,)]


async def test_a_lapse_that_a_worker_reports_needs_its_token(database: Database) -> None:
    await pending(database, items=2)
    taken = await claimed(database)
    first, second = (call.id for call in taken.calls)
    await lapse(database, "worker-1", taken.token, [first])
    await lapse(database, "worker-1", taken.token, [first])
    assert await rows(database, "SELECT call_id, lapses, token FROM queue ORDER BY call_id") == [
        (first, 1, None),
        (second, 0, taken.token),
    ]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


async def test_suspects_wait_until_nothing_else_runs(database: Database) -> None:
    await pending(database, items=3)
    suspects = await suspect(database, 2)
    ordinary = await claimed(database)
    assert [call.id for call in ordinary.calls if call.id in suspects] == []
    assert await claim(database) is None
    await answer(database, ordinary)
    assert (await claimed(database)).calls[0].id in suspects


async def test_a_suspect_runs_alone(database: Database) -> None:
    await pending(database, items=3)
    suspects = await suspect(database, 2)
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE lapses = 0")
    first = await claimed(database)
    assert len(first.calls) == 1
    await run_sql(database, "UPDATE queue SET not_before = NULL")
    assert await claim(database) is None
    await answer(database, first)
    assert len((await claimed(database)).calls) == 1
    assert {call.id for call in first.calls} < set(suspects)


async def test_another_models_suspect_holds_nobody_back(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "hybrid")
    await advance(database)
    dense = await claim(database, role="dense")
    assert dense is not None
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert len((await claim(database, role="dense")).calls) == 1  # type: ignore[union-attr]
    sparse = await claim(database, role="sparse")
    assert sparse is not None
    assert len(sparse.calls) == 2


async def test_a_suspect_that_is_being_claimed_gets_no_neighbour(database: Database) -> None:
    await pending(database, items=2)
    [chosen] = await suspect(database, 1)
    await run_sql(database, "UPDATE queue SET not_before = now() + interval '1 minute' WHERE lapses = 0")
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one, first=1)  # the search for ordinary calls finds nothing and passes
        alone = asyncio.create_task(claim(held))
        await held.reached.wait()
        await run_sql(database, "UPDATE queue SET not_before = NULL WHERE lapses = 0")
        beside = asyncio.create_task(claim(two, who="worker-2"))
        await somebody_waits(database)
        held.go.set()
        taken = await alone
        assert taken is not None
        assert [call.id for call in taken.calls] == [chosen]
        assert await beside is None


async def test_a_suspect_does_not_start_beside_a_claim_that_is_not_committed_yet(database: Database) -> None:
    await pending(database, items=2)
    await suspect(database, 1)
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one)
        ordinary = asyncio.create_task(claim(held))
        await held.reached.wait()
        beside = asyncio.create_task(claim(two, who="worker-2"))
        await somebody_waits(database)
        held.go.set()
        taken = await ordinary
        assert taken is not None
        assert len(taken.calls) == 1
        assert await beside is None


async def test_two_claimers_take_one_suspect_between_them(database: Database) -> None:
    await pending(database, items=2)
    await suspect(database, 2)
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one, first=1)
        first = asyncio.create_task(claim(held))
        await held.reached.wait()
        second = asyncio.create_task(claim(two, who="worker-2"))
        await somebody_waits(database)
        held.go.set()
        taken = [each for each in await asyncio.gather(first, second) if each is not None]
    assert [len(each.calls) for each in taken] == [1]
    assert await scalar(database, "SELECT count(*) FROM queue WHERE token IS NOT NULL") == 1


async def test_the_third_lapse_is_a_poisoned_reply(database: Database) -> None:
    await pending(database, items=1)
    for _ in range(LAPSES):
        taken = await claimed(database)
        await let_claims_expire(database)
        poisoned = await lapse_expired(database, "sweeper")
    assert poisoned == [taken.calls[0].id]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await rows(database, "SELECT accepted, outcome FROM attempts ORDER BY created_at") == [
        (False, "lapsed"),
        (False, "lapsed"),
        (True, "poisoned"),
    ]
    replies = await rows(
        database, "SELECT convert_from(reply, 'UTF8')::jsonb ->> 'detail' FROM attempts ORDER BY created_at"
    )
    assert [said for (said,) in replies] == [
        "1 claim of this call lapsed; after 3 it fails as poisoned",
        "2 claims of this call lapsed; after 3 it fails as poisoned",
        "3 claims of this call lapsed",
    ]
    assert await scalar(database, "SELECT failed FROM calls") is False
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples") == [(3, "poisoned")]


async def test_the_next_job_meets_the_poison_as_a_reply(database: Database) -> None:
    await test_the_third_lapse_is_a_poisoned_reply(database)
    await submit_job(database, "closed-book")
    await advance(database)
    assert await rows(database, "SELECT failure FROM samples") == [("poisoned",)] * 2
    assert await claim(database) is None


async def test_an_answer_after_the_poison_is_stale(database: Database) -> None:
    await pending(database, items=1)
    await suspect(database, 1)
    await suspect(database, 1)
    taken = await claimed(database)
    await let_claims_expire(database)
    await lapse_expired(database, "sweeper")
    assert await answer(database, taken) == []
    assert await scalar(database, "SELECT outcome FROM attempts WHERE accepted") == "poisoned"


class Deadly(ScriptedExecutor):
    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question
        self.chunks: list[int] = []

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        deadly = [call for call in calls if self._kills(call)]
        if deadly:
            self.chunks.append(len(calls))
            for call in calls:
                yield Lapse(call.id)
            return
        async for each in super().run(calls, epoch):
            yield each

    def _kills(self, call: ClaimedCall) -> bool:
        request = msgspec.json.decode(call.request, type=Request)
        return request.role == "generate" and request.values["question"] == self._question


async def test_poison_fails_its_own_sample_and_the_batch_completes(database: Database) -> None:
    await furnish(database, items=6)
    await submit_job(database, "closed-book")
    executor = Deadly("What is 3 plus 3?")
    await drain(database, executor)
    assert await job_states(database) == ["completed"]
    assert await rows(database, "SELECT ordinal, failure FROM samples WHERE state = 3") == [(3, "poisoned")]
    assert sorted(await sample_states(database)) == [2, 2, 2, 2, 2, 3]
    assert executor.chunks == [6, 1, 1]
    assert set(executor.ran.values()) == {1}


async def test_an_infrastructure_failure_does_not_clear_a_suspect(database: Database) -> None:
    await pending(database, items=1)
    await suspect(database, 1)
    taken = await claimed(database)
    await answer(database, taken, Failure(kind=FailureKind.CONNECTION))
    assert await rows(database, "SELECT lapses, tries FROM queue") == [(1, 1)]


async def test_releasing_a_suspect_keeps_its_record(database: Database) -> None:
    await pending(database, items=1)
    await suspect(database, 1)
    taken = await claimed(database)
    await Claims(database, "worker-1", 60.0).release(taken.token, [taken.calls[0].id])
    assert await scalar(database, "SELECT lapses FROM queue") == 1
