"""Claims, answers, failures, lapses, pauses and cancels in any order: a model says who holds what, the rows agree."""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.audit import check
from shared.calls import Lane
from shared.errors import Conflict
from shared.replies import Failure, FailureKind
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, pause, resume
from shared.runtime.queue import Claim, Claims, lapse_expired
from shared.storage.database import Database
from tests.integration.conftest import EmptyDatabase
from tests.integration.scene import (
    answered,
    furnish,
    let_claims_expire,
    let_pauses_pass,
    model,
    repair,
    rows,
    submit_job,
    without_gold,
)

T = TypeVar("T")

MODELS = {"dense": Lane.JUDGE, "sparse": Lane.JUDGE, "a-generator": Lane.GENERATE}
JOBS = 2
ITEMS = 2
SAMPLES = "SELECT id, state, position, failure FROM samples WHERE state >= 2"
ENDED = "SELECT id, state FROM jobs WHERE ended_at IS NOT NULL"
HELD = "SELECT call_id, token FROM queue WHERE token IS NOT NULL"
REPLIES = "SELECT call_id FROM attempts WHERE accepted"
POPULATION = """
    SELECT j.id, count(s.id) FROM jobs j LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'item'
    WHERE j.state <> 'preparing' GROUP BY j.id"""
FAILED = Failure(kind=FailureKind.CONNECTION, detail="gone")


class Runtime(RuleBasedStateMachine):
    url: str
    """Of the database."""
    empty_database: EmptyDatabase

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.holders: dict[int, uuid.UUID] = {}
        """Who holds which call now."""
        self.replies: set[int] = set()
        self.claims: list[Claim] = []
        """Every claim that was ever made; most of them are over."""
        self.over: dict[str, set[tuple[object, ...]]] = {SAMPLES: set(), ENDED: set()}
        self.empty_database()
        self.run(self.begin())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    async def begin(self) -> None:
        self.database = Database(self.url, pinned=True)
        await furnish(self.database, items=ITEMS, needs_lease=False)  # residencies are another story
        await without_gold(self.database)
        self.jobs = [await submit_job(self.database, "hybrid", name=f"job-{n}") for n in range(JOBS)]
        self.worker = Claims(self.database, "worker", 60.0)

    @rule()
    def advance(self) -> None:
        self.run(Advancer(self.database).advance())

    @rule(name=st.sampled_from(sorted(MODELS)), limit=st.integers(1, 3))
    def claim(self, name: str, limit: int) -> None:
        taken = self.run(self.claimed(name, limit))
        for call in taken.calls if taken else ():
            assert call.id not in self.holders
            assert call.id not in self.replies
        if taken:
            self.claims.append(taken)
            self.holders |= {call.id: taken.token for call in taken.calls}

    async def claimed(self, name: str, limit: int) -> Claim | None:
        await let_pauses_pass(self.database)
        return await self.worker.claim(MODELS[name], await model(self.database, name), limit)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.claims), "claim")
        calls = data.draw(st.lists(st.sampled_from(taken.calls), min_size=1, unique_by=lambda call: call.id), "calls")
        held = {call.id for call in calls if self.holders.get(call.id) == taken.token}
        done = self.run(self.worker.answer(taken.token, [answered(call) for call in calls]))
        assert set(done.calls) == held
        self.settle(held)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.claims), "claim")
        held = {call.id for call in taken.calls if self.holders.get(call.id) == taken.token}
        done = self.run(self.worker.answer(taken.token, [answered(call, FAILED) for call in taken.calls]))
        assert set(done.calls) == held
        for call in held:
            del self.holders[call]
        self.replies |= self.stored() & held

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.claims), "claim")
        self.run(self.worker.release(taken.token, [call.id for call in taken.calls]))
        self.holders = {call: token for call, token in self.holders.items() if token != taken.token}

    @rule()
    def lapse(self) -> None:
        held = set(self.holders)
        poisoned = self.run(self.lapsed())
        assert poisoned <= held
        self.holders.clear()
        self.replies |= poisoned

    async def lapsed(self) -> set[int]:
        await let_claims_expire(self.database)
        return set(await lapse_expired(self.database, "sweeper"))

    @rule(job=st.integers(0, JOBS - 1), what=st.sampled_from([cancel, pause, resume]))
    def control(self, job: int, what: Any) -> None:
        try:
            self.run(what(self.database, self.jobs[job]))
        except Conflict:
            return

    @rule()
    def sweep(self) -> None:
        self.run(repair(self.database))

    def settle(self, calls: set[int]) -> None:
        for call in calls:
            del self.holders[call]
        self.replies |= calls

    def stored(self) -> set[int]:
        return {call for (call,) in self.run(rows(self.database, REPLIES))}  # type: ignore[misc]

    @invariant()
    def the_rows_agree(self) -> None:
        assert dict(self.run(rows(self.database, HELD))) == self.holders  # type: ignore[arg-type]
        assert self.stored() == self.replies

    @invariant()
    def what_is_over_stays_over(self) -> None:
        for query, before in self.over.items():
            now = set(self.run(rows(self.database, query)))
            assert before <= now
            self.over[query] = now

    @invariant()
    def no_sample_is_lost(self) -> None:
        assert {count for _, count in self.run(rows(self.database, POPULATION))} <= {ITEMS}

    def teardown(self) -> None:
        try:
            self.run(self.finish())
        finally:
            self.run(self.database.close())
            self.runner.close()

    async def finish(self) -> None:
        await let_claims_expire(self.database)
        for job in self.jobs:
            try:
                await resume(self.database, job)
            except Conflict:
                continue
        for _ in range(50):
            await repair(self.database)
            await Advancer(self.database).advance()
            for name in MODELS:
                while taken := await self.claimed(name, 16):
                    await self.worker.answer(taken.token, [answered(call) for call in taken.calls])
            if len(await rows(self.database, ENDED)) == JOBS:
                break
        assert len(await rows(self.database, ENDED)) == JOBS
        assert await rows(self.database, "SELECT id FROM samples WHERE state < 2") == []
        for job in self.jobs:
            assert await check(self.database, job) == []


@pytest.fixture
def runtime(database_url: str, empty_database: EmptyDatabase) -> Iterator[type[Runtime]]:
    Runtime.url, Runtime.empty_database = database_url, staticmethod(empty_database)
    return Runtime


@pytest.mark.slow
def test_whatever_happens_in_whatever_order_the_rows_are_right(runtime: type[Runtime]) -> None:
    few = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(runtime, settings=few)
