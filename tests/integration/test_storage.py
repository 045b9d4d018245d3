"""Rows: lost acknowledgements, migrations, purges, connections, and claims in any order."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from mathrag.errors import Conflict, NotFound, Unavailable
from mathrag_gate.stack import postgres
from shared.audit import check
from shared.calls import Lane
from shared.lease.lease import StreamBroken
from shared.replies import Failure, FailureKind
from shared.runtime import purge as purging
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, finish_due_jobs, pause, resume
from shared.runtime.queue import Claim, Claims, lapse_expired, sweep
from shared.storage import database as storage
from shared.storage.database import Database, is_passing, retry_through_outage
from shared.storage.datasets import provide_unlisted
from tests.faults.proxy import Cuts, PostgresWire, Proxy
from tests.integration.api import Api, serving
from tests.integration.conftest import EmptyDatabase
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    add_dataset,
    advance,
    answer,
    answered,
    attempt,
    claim_some,
    drain,
    furnish,
    job_states,
    let_claims_expire,
    let_pauses_pass,
    model,
    processes,
    queue_job,
    repair,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    stuck,
    submit_job,
    without_gold,
    worker,
)
from tests.integration.test_audit import completed, staged
from tests.integration.test_jobs_api import BODY, JOBS, post
from tests.integration.test_reconciler import Rig
from tests.integration.test_workers import Refusing, queue

pytestmark = pytest.mark.anyio


# A commit whose answer never comes: whether it happened or not, it costs a moment, and no call and no sample.


CLAIM = "delete queue, update outages, update queue"
ANSWER = "delete queue, insert attempts"
RETRY = "insert attempts, update queue"
RELEASE = "update queue"
LOOK = "update samples"
END = "insert outcomes, update samples"
SUBMIT = "delete idempotency, insert idempotency, insert jobs, insert samples, update jobs"
FAILED = Failure(kind=FailureKind.TIMEOUT, detail="too late")
BOTH = pytest.mark.parametrize("happened", [True, False], ids=["it happened", "it did not"])


@pytest.fixture
def cuts() -> Cuts:
    return Cuts()


@pytest.fixture
async def cut(database: Database, cuts: Cuts) -> AsyncIterator[Database]:
    url = make_url(database.engine.url)
    with Proxy(url.port or 5432, lambda: PostgresWire(cuts)) as proxy:
        through = Database(url.set(host="127.0.0.1", port=proxy.port), pinned=True)  # type: ignore[arg-type]
        yield through
        await through.close()


async def claims(database: Database) -> Claims:
    return Claims(database, "worker-1", 15.0)


@BOTH
async def test_a_claim_is_ours_if_it_happened_and_else_nobodys(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await queue_job(database, 4)
    mine, generator = await claims(cut), await model(database)
    cuts.cut_next(CLAIM, happened=happened)
    if happened:
        taken = await mine.claim(Lane.GENERATE, generator, 100)
        assert taken is not None
        assert len(taken.calls) == 4
    else:
        with pytest.raises(DBAPIError) as raised:
            await mine.claim(Lane.GENERATE, generator, 100)
        assert is_passing(raised.value)
    assert await queue(database) == [(happened, 0, 0)] * 4


@BOTH
async def test_an_answer_is_stored_once_and_wakes_its_sample(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await queue_job(database, 4)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(ANSWER, happened=happened)
    committed = await mine.answer(taken.token, [answered(call) for call in taken.calls])
    assert sorted(committed.calls) == [call.id for call in taken.calls]
    assert committed.ready == 4
    assert await rows(database, "SELECT accepted, count(*) FROM attempts GROUP BY 1") == [(True, 4)]
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


@BOTH
async def test_a_failed_try_is_charged_once(database: Database, cut: Database, cuts: Cuts, happened: bool) -> None:
    await queue_job(database, 1)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(RETRY, happened=happened)
    await mine.answer(taken.token, [answered(taken.calls[0], FAILED)])
    assert await queue(database) == [(False, 0, 1)]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 1


@BOTH
async def test_what_is_given_back_is_given_back(database: Database, cut: Database, cuts: Cuts, happened: bool) -> None:
    await queue_job(database, 4)
    mine = await claims(cut)
    taken = await mine.claim(Lane.GENERATE, await model(database), 100)
    assert taken is not None
    cuts.cut_next(RELEASE, happened=happened)
    await mine.release(taken.token, [call.id for call in taken.calls])
    assert await queue(database) == [(False, 0, 0)] * 4


@BOTH
@pytest.mark.parametrize("kind", [CLAIM, ANSWER, LOOK, END])
async def test_a_worker_that_is_cut_off_ends_its_samples_all_the_same(
    database: Database, cut: Database, cuts: Cuts, kind: str, happened: bool
) -> None:
    await queue_job(database, 4)
    executor = ScriptedExecutor()
    cuts.cut_next(kind, happened=happened)
    await worker(cut, Lane.GENERATE, executor).drain()
    await sweep(database, "sweeper")
    await Advancer(database).advance()
    assert cuts.hits.total() == 1
    assert await sample_states(database) == [2] * 4
    assert set(executor.ran.values()) == {1}
    assert await rows(database, "SELECT accepted, outcome, count(*) FROM attempts GROUP BY 1, 2") == [
        (True, "value", 4)
    ]


@BOTH
async def test_a_chunk_that_broke_off_is_charged_once(
    database: Database, cut: Database, cuts: Cuts, happened: bool
) -> None:
    await queue_job(database, 4)
    cuts.cut_next("delete queue, insert attempts, update queue", happened=happened)
    await worker(cut, Lane.GENERATE, Refusing(StreamBroken("gone"), 2)).drain()
    assert await rows(database, "SELECT outcome, count(*) FROM attempts GROUP BY 1 ORDER BY 1") == [
        ("lapsed", 2),
        ("value", 4),
    ]


async def test_commits_that_are_cut_over_and_over_fail_no_sample(database: Database, cut: Database, cuts: Cuts) -> None:
    await queue_job(database, 30)
    executor = ScriptedExecutor()
    cuts.arm(every=3, most=1000)
    while await scalar(database, "SELECT count(*) FROM samples WHERE state < 2"):
        await worker(cut, Lane.GENERATE, executor, chunk=2).drain()
        await let_pauses_pass(database)
        await sweep(database, "sweeper")
    assert set(await sample_states(database)) == {2}
    assert await lapse_expired(database, "sweeper") == []
    assert await stuck(database) == []
    assert set(executor.ran.values()) == {1}
    assert cuts.hits.total() > 10


@pytest.fixture
async def api(database: Database, cut: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database)
    async with serving(cut, redis_url) as serving_api:
        yield serving_api


@BOTH
async def test_a_submission_that_is_sent_again_is_one_job(
    api: Api, database: Database, cuts: Cuts, happened: bool
) -> None:
    await post(api, "k-0", body={**BODY, "name": "before"})
    cuts.cut_next(SUBMIT, happened=happened)
    first = await post(api, "k-1")
    assert (first.status_code, first.json()["type"]) == (503, "urn:mathrag:unavailable")
    assert "retry-after" in first.headers
    # PostgreSQL notices a moment later that a connection was cut; until then the first request counts as in progress.
    while (again := await post(api, "k-1")).status_code == 409:  # noqa: ASYNC110 - the end of a connection tells nobody
        await asyncio.sleep(0.02)
    assert (again.status_code, "idempotency-replayed" in again.headers) == (202, happened)
    assert await scalar(database, JOBS) == 2


@pytest.mark.parametrize("every", [1, 2])
async def test_a_flip_whose_steps_are_cut_off_opens_all_the_same(
    database: Database, cut: Database, cuts: Cuts, every: int
) -> None:
    rig = await Rig(cut).register()
    epoch = await rig.want("judge")
    cuts.arm(every=every, most=2)
    await rig.reconciler.reconcile()
    assert cuts.hits.total() >= 2
    assert await rows(database, "SELECT state, jsonb_array_length(servers) FROM residencies") == [("open", 1)]
    assert rig.guard.epoch == epoch


# Purging: an ended job goes with all that is its own, what others share stays, and nobody loses a call in between.

LEFT = (
    "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM samples), (SELECT count(*) FROM steps),"
    " (SELECT count(*) FROM outcomes), (SELECT count(*) FROM records), (SELECT count(*) FROM job_events),"
    " (SELECT count(*) FROM idempotency)"
)


async def shelve(database: Database) -> None:
    await run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT c.id, n, n::text, d.hash FROM corpora c, (SELECT hash, row_number() OVER () n FROM documents) d",
    )


async def purged(owner: Database, *references: str) -> list[purging.JobContent]:
    chosen = await purging.find_jobs(owner, references)
    for job in chosen:
        await purging.purge(owner, job, "a-test")
    return chosen


async def test_a_purged_job_leaves_nothing_of_its_own(database: Database, owner: Database) -> None:
    job = await completed(database)
    await run_sql(
        database, "INSERT INTO idempotency (key, operation, body_hash, job_id) SELECT 'k', 'submit', '', id FROM jobs"
    )
    calls = await scalar(database, "SELECT count(*) FROM calls")
    (found,) = await purged(owner, str(job))
    assert (found.samples, found.outcomes, found.records, found.idempotency_keys) == (6, 6, 5, 1)
    assert await rows(database, LEFT) == [(0,) * 7]
    assert await scalar(database, "SELECT count(*) FROM calls") == calls


async def test_a_purge_says_what_it_deletes_before_it_does(database: Database, owner: Database) -> None:
    job = await completed(database, "closed-book")
    chain = await scalar(database, "SELECT encode(chain, 'hex') FROM jobs")
    await purged(owner, "a-job")
    ((actor, target, detail),) = await rows(database, "SELECT actor, target, detail FROM operations")
    assert (actor, target) == ("a-test", f"job {job}")
    assert detail["chain"] == chain  # type: ignore[index]
    assert (detail["samples"], detail["records"], detail["state"]) == (5, 5, "completed")  # type: ignore[index]


async def test_a_purge_that_was_killed_is_finished_by_the_next(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    (job,) = await purging.find_jobs(owner, ["a-job"])
    held = HeldDatabase(owner, first=1)
    killed = asyncio.create_task(purging.purge(held, job, "killed"))
    await held.reached.wait()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    await purged(owner, "a-job")
    assert await rows(database, LEFT) == [(0,) * 7]
    assert await rows(database, "SELECT actor FROM operations ORDER BY id") == [("killed",), ("a-test",)]


async def test_a_live_job_is_not_purged(database: Database, owner: Database) -> None:
    await completed(database, "closed-book")
    await submit_job(database, name="live")
    with pytest.raises(Conflict, match=r"live .* is preparing"):
        await purging.find_jobs(owner, ["a-job", "live"])
    with pytest.raises(NotFound):
        await purging.find_jobs(owner, ["nobody"])
    assert await scalar(database, "SELECT count(*) FROM operations") == 0


async def test_jobs_are_chosen_by_age_and_number(database: Database, owner: Database) -> None:
    await furnish(database)
    for name in ("first", "second", "third"):
        await submit_job(database, "closed-book", name=name)
        await drain(database, ScriptedExecutor())
    await submit_job(database, name="live")
    await run_sql(database, "UPDATE jobs SET ended_at = ended_at - interval '10 days' WHERE name <> 'third'")
    week = datetime.now(UTC) - timedelta(days=7)
    assert [job.name for job in await purging.find_outdated(owner, None, 1)] == ["first", "second"]
    assert [job.name for job in await purging.find_outdated(owner, week, 0)] == ["first", "second"]
    assert [job.name for job in await purging.find_outdated(owner, week, 2)] == ["first"]
    assert await purging.find_outdated(owner, None, 3) == []


async def test_what_another_job_shares_stays_and_its_audit_is_clean(database: Database, owner: Database) -> None:
    first = await completed(database)
    await shelve(database)
    await add_dataset(database, 5, "changed", frozenset({1}))
    second = await submit_job(database, dataset="changed", name="second")
    await staged(database)
    needed = await scalar(database, "SELECT count(DISTINCT call_id) FROM steps t JOIN samples s ON s.id = t.sample_id"
                          " JOIN jobs j ON j.id = s.job_id WHERE j.name = 'second'")  # fmt: skip
    await purged(owner, str(first))
    removed = await purging.remove_unused(owner, "a-test")
    assert removed.calls > 0
    assert removed.attempts == removed.calls
    assert await scalar(database, "SELECT count(*) FROM calls") == needed
    assert await check(database, second) == []


async def test_calls_that_nobody_needs_are_removed_and_counted(database: Database, owner: Database) -> None:
    job = await completed(database)
    await shelve(database)
    calls = await scalar(database, "SELECT count(*) FROM calls")
    await purged(owner, str(job))
    removed = await purging.remove_unused(owner, "a-test")
    assert removed == purging.RemovedRows(calls=calls, attempts=calls, documents=0)  # type: ignore[arg-type]
    assert await scalar(database, "SELECT count(*) FROM attempts") == 0
    detail = await scalar(database, "SELECT detail FROM operations WHERE target = 'calls'")
    assert detail["calls"] == calls  # type: ignore[index]


async def test_young_calls_can_be_kept_as_a_cache(database: Database, owner: Database) -> None:
    job = await completed(database, "closed-book")
    await purged(owner, str(job))
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert (await purging.remove_unused(owner, "a-test", before=hour_ago)).calls == 0
    executor = ScriptedExecutor()
    await submit_job(database, "closed-book")
    await drain(database, executor)
    assert await job_states(database) == ["completed"]
    assert not executor.ran


async def test_a_call_that_is_queued_or_claimed_is_never_removed(database: Database, owner: Database) -> None:
    await furnish(database)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim_some(database, 2)
    assert (await purging.remove_unused(owner, "a-test")).calls == 0
    await answer(database, taken)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed"]


async def test_a_parked_call_of_a_paused_job_is_never_removed(database: Database, owner: Database) -> None:
    await furnish(database)
    await submit_job(database, "closed-book")
    await advance(database)
    await run_sql(database, "UPDATE jobs SET state = 'paused'")
    await run_sql(database, "DELETE FROM queue")
    assert (await purging.remove_unused(owner, "a-test")).calls == 0


async def test_whoever_attached_first_keeps_its_call(database: Database, owner: Database) -> None:
    job = await completed(database, "closed-book")
    await purged(owner, str(job))
    await submit_job(database, "closed-book", name="again")
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other)
        attaching = asyncio.create_task(Advancer(held).advance())
        await held.reached.wait()
        assert await purging.remove_calls(owner) == (0, 0)
        held.go.set()
        await attaching
    await finish_due_jobs(database)
    assert await job_states(database) == ["completed"]


async def test_whoever_attaches_to_a_call_that_is_being_removed_asks_anew(database: Database, owner: Database) -> None:
    job = await completed(database, "closed-book")
    await purged(owner, str(job))
    again = await submit_job(database, "closed-book", name="again")
    held = HeldDatabase(owner)
    removing = asyncio.create_task(purging.remove_calls(held))
    await held.reached.wait()
    async with processes(database, 1) as [other]:
        attaching = asyncio.create_task(Advancer(other).advance())
        await somebody_waits(database)
        held.go.set()
        assert await removing == (10, 10)
        assert (await attaching).samples == 5
    await staged(database)
    assert await sample_states(database) == [2] * 5
    assert await check(database, again) == []


async def test_an_index_for_deletions_is_gone_afterwards(database: Database, owner: Database) -> None:
    await run_sql(owner, "CREATE INDEX attempts_of_call ON attempts (call_id)")
    await purging.remove_unused(owner, "a-test")
    assert await scalar(database, "SELECT count(*) FROM pg_indexes WHERE indexname = 'attempts_of_call'") == 0


async def test_documents_go_with_the_last_corpus_that_holds_them(database: Database, owner: Database) -> None:
    job = await completed(database, "closed-book")
    await shelve(database)
    assert await purging.delete_unused(owner, "a-test") == {"experiments": [], "datasets": [], "corpora": []}
    await purged(owner, str(job))
    assert (await purging.remove_unused(owner, "a-test")).documents == 0
    assert await purging.delete_unused(owner, "a-test") == {
        "experiments": [],
        "datasets": ["items"],
        "corpora": ["docs"],
    }
    assert (await purging.remove_unused(owner, "a-test")).documents == 20


async def test_questions_of_online_jobs_are_forgotten_with_them(database: Database, owner: Database) -> None:
    await furnish(database)
    await run_sql(database, "UPDATE datasets SET online = true")
    assert await purging.forget_questions(owner) == 0
    await run_sql(database, "UPDATE datasets SET created_at = now() - interval '2 hours'")
    assert await purging.forget_questions(owner) == 1


async def test_a_cancelled_job_is_purged_like_any_other(database: Database, owner: Database) -> None:
    await furnish(database)
    job = await submit_job(database, "hybrid")
    await advance(database)
    await cancel(database, job)
    await finish_due_jobs(database)
    await purged(owner, "a-job")
    assert (await purging.remove_unused(owner, "a-test")).attempts == 0
    assert await scalar(database, "SELECT count(*) FROM calls") == 0


async def test_the_application_cannot_purge(database: Database) -> None:
    await completed(database, "closed-book")
    (job,) = await purging.find_jobs(database, ["a-job"])
    with pytest.raises(DBAPIError, match="permission denied"):
        await purging.purge(database, job, "application")
    with pytest.raises(DBAPIError, match="permission denied"):
        await attempt(database, "DELETE FROM jobs")


async def test_chats_go_by_themselves_and_other_jobs_stay(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(database)
    await submit_job(database, "closed-book", name="job")
    for name, question in (("old chat", "What is old?"), ("young chat", "What is young?")):
        dataset = await provide_unlisted(database, "online", [question])
        await submit_job(database, "closed-book", name=name, dataset=dataset, online=True)
    await drain(database, ScriptedExecutor())
    calls = await scalar(database, "SELECT count(*) FROM calls")
    await run_sql(database, "UPDATE jobs SET ended_at = ended_at + interval '1 hour' WHERE name = 'young chat'")
    await run_sql(database, "UPDATE datasets SET created_at = created_at - interval '2 hours'")
    monkeypatch.setenv("MATHRAG_RETENTION__CHAT_HOURS", "1e-6")
    await postgres.purge_chats(owner_url)
    assert await rows(database, "SELECT name FROM jobs ORDER BY id") == [("job",), ("young chat",)]
    assert await scalar(database, "SELECT count(*) FROM datasets WHERE online") == 1
    assert await scalar(database, "SELECT count(*) FROM calls") == calls - 1
    assert await scalar(database, "SELECT actor FROM operations WHERE target LIKE 'job %'") == "retention"


async def test_chats_that_cannot_be_deleted_are_reported(owner_url: str) -> None:
    with pytest.raises(Unavailable, match=r"old chats were not deleted: .*no_such_database"):
        await postgres.purge_chats(owner_url.rpartition("/")[0] + "/no_such_database")


# Connections of the pool: one that will never serve again is made anew.

DEMOTE = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
WRITE = text("INSERT INTO operations (actor, action, target) VALUES ('me', 'drain', 'cpu:0')")


@pytest.fixture
async def own_database(database: Database, database_url: str) -> AsyncIterator[Database]:
    connections = Database(database_url, pinned=True)
    yield connections
    await connections.close()


async def demoted(own_database: Database) -> None:
    async with own_database.engine.connect() as connection:
        await connection.execute(text(DEMOTE))
        await connection.commit()


async def test_a_connection_that_may_only_read_is_given_up(own_database: Database) -> None:
    await demoted(own_database)
    with pytest.raises(DBAPIError) as raised:
        async with own_database.transaction() as connection:
            await connection.execute(WRITE)
    assert is_passing(raised.value)
    async with own_database.transaction() as connection:
        await connection.execute(WRITE)


async def test_what_is_tried_again_outlasts_it(own_database: Database) -> None:
    await demoted(own_database)

    async def write() -> None:
        async with own_database.transaction() as connection:
            await connection.execute(WRITE)

    await retry_through_outage(write, 10)
    async with own_database.transaction() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM operations"))).scalar() == 1


async def test_a_statement_that_is_not_answered_in_time_is_an_outage(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "STATEMENT_S", 0.2)
    impatient = Database(database_url, pinned=True)
    with pytest.raises(DBAPIError, match="did not answer in time") as raised:
        async with impatient.transaction() as connection:
            await connection.execute(text("SELECT pg_sleep(600)"))
    assert is_passing(raised.value)
    async with impatient.transaction() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    await impatient.close()


# Claims, answers, failures, lapses, pauses and cancels in any order: a model says who holds what, the rows agree.

T = TypeVar("T")

MODELS = {"dense": Lane.JUDGE, "sparse": Lane.JUDGE, "a-generator": Lane.GENERATE}
MACHINE_JOBS = 2
MACHINE_ITEMS = 2
SAMPLES = "SELECT id, state, position, failure FROM samples WHERE state >= 2"
ENDED = "SELECT id, state FROM jobs WHERE ended_at IS NOT NULL"
HELD = "SELECT call_id, token FROM queue WHERE token IS NOT NULL"
REPLIES = "SELECT call_id FROM attempts WHERE accepted"
POPULATION = """
    SELECT j.id, count(s.id) FROM jobs j LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'item'
    WHERE j.state <> 'preparing' GROUP BY j.id"""
DISCONNECTED = Failure(kind=FailureKind.CONNECTION, detail="gone")


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
        await furnish(self.database, items=MACHINE_ITEMS, needs_lease=False)  # residencies are another story
        await without_gold(self.database)
        self.jobs = [await submit_job(self.database, "hybrid", name=f"job-{n}") for n in range(MACHINE_JOBS)]
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
        done = self.run(self.worker.answer(taken.token, [answered(call, DISCONNECTED) for call in taken.calls]))
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

    @rule(job=st.integers(0, MACHINE_JOBS - 1), what=st.sampled_from([cancel, pause, resume]))
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
        assert {count for _, count in self.run(rows(self.database, POPULATION))} <= {MACHINE_ITEMS}

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
            if len(await rows(self.database, ENDED)) == MACHINE_JOBS:
                break
        assert len(await rows(self.database, ENDED)) == MACHINE_JOBS
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
