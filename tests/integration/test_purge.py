"""Purging: an ended job goes with all that is its own, what others share stays, and nobody loses a call in between."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from shared.audit import check
from shared.errors import Conflict, NotFound
from shared.runtime import purge as purging
from shared.runtime import submit
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.storage.database import Database
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    add_dataset,
    advance,
    answer,
    attempt,
    claim,
    drain,
    furnish,
    job_states,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    submit_job,
)
from tests.integration.test_audit import completed, staged

pytestmark = pytest.mark.anyio

LEFT = (
    "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM samples), (SELECT count(*) FROM steps),"
    " (SELECT count(*) FROM outcomes), (SELECT count(*) FROM records), (SELECT count(*) FROM job_events),"
    " (SELECT count(*) FROM idempotency)"
)


@pytest.fixture
async def owner(owner_url: str, database: Database) -> AsyncIterator[Database]:
    owner = Database(owner_url, pinned=False)
    yield owner
    await owner.close()


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
    taken = await claim(database, 2)
    assert taken is not None
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


async def test_chats_go_by_themselves_and_other_jobs_stay(database: Database, owner: Database, owner_url: str) -> None:
    await furnish(database)
    await submit_job(database, "closed-book", name="job")
    for name, question in (("old chat", "What is old?"), ("young chat", "What is young?")):
        await submit.provide_dataset(database, question)
        await submit_job(database, "closed-book", name=name, dataset=submit.dataset_name(question), online=True)
    await drain(database, ScriptedExecutor())
    calls = await scalar(database, "SELECT count(*) FROM calls")
    await run_sql(database, "UPDATE jobs SET ended_at = ended_at + interval '1 hour' WHERE name = 'young chat'")
    await run_sql(database, "UPDATE datasets SET created_at = created_at - interval '2 hours'")
    await purging.purge_ended(owner_url, 0)
    assert await rows(database, "SELECT name FROM jobs ORDER BY id") == [("job",), ("young chat",)]
    assert await scalar(database, "SELECT count(*) FROM datasets WHERE online") == 1
    assert await scalar(database, "SELECT count(*) FROM calls") == calls - 1
    assert await scalar(database, "SELECT actor FROM operations WHERE target LIKE 'job %'") == "retention"
