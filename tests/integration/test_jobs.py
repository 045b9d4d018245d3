"""Jobs in the database: cancelled, amended, named, and counted for who polls."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, NotFound, PreconditionFailed
from services.orchestrator.polling import COST, FRESH_S, OLDEST_S, TRUSTED_S, JobViewCache
from shared.runtime import lifecycle
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import Amendment, amend, cancel, pause, resume
from shared.runtime.queue import CLAIM, lanes_with_work
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    advance,
    answer,
    answer_preparations,
    claim,
    claim_some,
    commit_while_waited_for,
    die_before_commit,
    drain,
    furnish,
    job_states,
    processes,
    queue_job,
    repair,
    rows,
    run_sql,
    sample_states,
    scalar,
    somebody_waits,
    submit_job,
    without_gold,
)

# Cancel: the job's samples end at once, nobody else is harmed, and nothing that was cancelled starts again.


pytestmark = pytest.mark.anyio


async def test_cancelling_ends_the_samples_and_takes_the_calls_out_of_the_queue(database: Database) -> None:
    job = await queue_job(database)
    await cancel(database, job)
    assert await sample_states(database) == [4, 4]
    assert await scalar(database, "SELECT count(*) FROM samples WHERE ended_at IS NULL") == 0
    assert await scalar(database, "SELECT count(*) FROM queue") == 0
    assert await lanes_with_work(database) == set()
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]


async def test_cancelling_again_is_harmless(database: Database) -> None:
    job = await queue_job(database)
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
    job = await queue_job(database)
    await die_before_commit(database, lambda held: cancel(held, job), first=1)
    assert await scalar(database, "SELECT count(*) FROM queue") == 2
    assert await sample_states(database) == [4, 4]
    await cancel(database, job)
    assert await scalar(database, "SELECT count(*) FROM queue") == 0


async def test_cancelled_is_final(database: Database) -> None:
    job = await queue_job(database)
    await cancel(database, job)
    await repair(database)
    executor = ScriptedExecutor()
    await drain(database, executor)
    await repair(database)
    assert await job_states(database) == ["cancelled"]
    assert await sample_states(database) == [4, 4]
    assert not executor.ran


async def test_an_unknown_job_is_not_found_in_cancel(database: Database) -> None:
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
    job = await queue_job(database)
    await answer(database, await claim_some(database, 1))
    await advance(database)
    await cancel(database, job)
    assert sorted(await sample_states(database)) == [2, 4]
    assert await scalar(database, "SELECT count(*) FROM outcomes") == 1


async def test_a_job_that_shares_calls_is_not_harmed(database: Database) -> None:
    job = await queue_job(database, 4)
    await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim_some(database, 2)
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
    job = await queue_job(database)
    taken = await claim_some(database)
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
    job = await queue_job(database)
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
    job = await queue_job(database)
    await submit_job(database, "closed-book")
    await advance(database)
    await claim_some(database)
    await cancel(database, job)
    await lifecycle.finish_due_jobs(database)
    assert await job_states(database) == ["cancelled", "running"]


async def test_a_reply_that_arrives_after_the_cancel_is_kept_and_ends_nothing(database: Database) -> None:
    job = await queue_job(database)
    taken = await claim_some(database)
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
    await commit_while_waited_for(database, lambda held: Advancer(held).advance(), lambda two: cancel(two, job))
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
        await answer_preparations(database)
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


# What may change about a job after it was accepted, and what that does to its calls.

RANKS = "SELECT place >> 47 AS rank, count(*) FROM queue GROUP BY rank ORDER BY rank"


async def test_a_new_rank_counts_for_the_calls_in_the_queue(database: Database) -> None:
    job = await queue_job(database)
    await amend(database, job, Amendment(rank=3))
    assert await rows(database, RANKS) == [(3, 2)]
    assert await rows(database, "SELECT name, rank, version FROM jobs") == [("a-job", 3, 3)]


async def test_a_call_is_as_urgent_as_the_most_urgent_job_that_waits_for_it(database: Database) -> None:
    job = await queue_job(database, rank=10)
    await submit_job(database, "closed-book", rank=50)
    await advance(database)
    await amend(database, job, Amendment(rank=90))
    assert await rows(database, RANKS) == [(50, 2)]
    await amend(database, job, Amendment(rank=20))
    assert await rows(database, RANKS) == [(20, 2)]


async def test_a_call_that_is_claimed_keeps_its_rank(database: Database) -> None:
    job = await queue_job(database)
    await claim(database, 1)
    await amend(database, job, Amendment(rank=1))
    assert await rows(database, RANKS) == [(1, 1), (100, 1)]


async def test_a_paused_job_comes_back_with_its_new_rank(database: Database) -> None:
    job = await queue_job(database)
    await pause(database, job)
    await amend(database, job, Amendment(rank=1))
    await resume(database, job)
    assert await rows(database, RANKS) == [(1, 2)]


async def test_what_is_not_named_stays(database: Database) -> None:
    job = await queue_job(database, metadata={"a": "1"})
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
    job = await queue_job(database)
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


# A name stands for one job: a second job of the same name is refused.

BODY = {"name": "first", "dataset": "items", "pipeline": "closed-book"}


async def post(api: Api, body: Any = BODY, key: str | None = None) -> httpx2.Response:
    return await api.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key} if key else {})


async def names(database: Database) -> list[object]:
    return [row[0] for row in await scene.rows(database, "SELECT name FROM jobs ORDER BY id")]


async def test_a_second_job_of_the_same_name_is_refused_with_the_id_of_the_first(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    refused = await post(api)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:mathrag:conflict")
    assert first in refused.json()["detail"]
    assert "another name" in refused.json()["hint"]
    await finished(database)
    assert (await post(api)).status_code == 409
    assert await names(database) == ["first"]


async def test_the_key_of_the_first_request_still_returns_the_first_job(api: Api) -> None:
    first = await post(api, key="k")
    again = await post(api, key="k")
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (await post(api, key="other")).status_code == 409


async def test_of_many_requests_at_once_one_gets_the_name(api: Api, database: Database) -> None:
    replies = await asyncio.gather(*(post(api) for _ in range(12)))
    assert Counter(reply.status_code for reply in replies) == {202: 1, 409: 11}
    assert await names(database) == ["first"]


async def test_the_name_of_a_job_in_flight_is_held_until_its_commit(api: Api, database: Database) -> None:
    async with database.engine.connect() as other:
        await other.begin()
        await lifecycle.reserve(other, ["first"])
        refused = await post(api)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:mathrag:in_progress")
        await other.rollback()
    assert (await post(api)).status_code == 202


async def test_a_job_cannot_be_renamed_to_the_name_of_another(api: Api) -> None:
    await post(api)
    second = (await post(api, {**BODY, "name": "second"})).json()["id"]
    any_version = {"If-Match": "*"}
    renamed = await api.http.patch(f"/v1/jobs/{second}", json={"name": "first"}, headers=any_version)
    assert (renamed.status_code, "'first'" in renamed.json()["detail"]) == (409, True)
    kept = await api.http.patch(f"/v1/jobs/{second}", json={"name": "second", "rank": 3}, headers=any_version)
    assert (kept.status_code, kept.json()["rank"]) == (200, 3)


async def test_requeued_twice_a_job_gets_the_next_number_each_time(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    await post(api, {**BODY, "name": "first-r3"})
    await finished(database)
    for _ in range(2):
        assert (await api.http.post(f"/v1/jobs/{first}/requeue")).status_code == 202
    assert await names(database) == ["first", "first-r3", "first-r2", "first-r4"]


async def test_an_experiment_whose_job_would_have_a_taken_name_is_refused_whole(api: Api, database: Database) -> None:
    await post(api, {**BODY, "name": "grid-b-2"})
    variants = [{"name": name, "pipeline": pipeline} for name, pipeline in (("a", "closed-book"), ("b", "hybrid"))]
    body = {"name": "grid", "datasets": [{"dataset": "items", "corpus": "docs"}], "variants": variants}
    refused = await api.http.post("/v1/experiments", json=body)
    assert (refused.status_code, "'grid-b-2'" in refused.json()["detail"]) == (409, True)
    assert await names(database) == ["grid-b-2"]


async def test_names_that_earlier_releases_gave_twice_stay_as_they_are(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    await post(api, {**BODY, "name": "second"})
    await scene.run_sql(database, "UPDATE jobs SET name = 'first'")
    assert [job["name"] for job in (await api.get("/v1/jobs"))["data"]] == ["first", "first"]
    refused = await post(api)
    assert (refused.status_code, first in refused.json()["detail"]) == (409, True)


async def test_a_chat_takes_no_name(api: Api, database: Database) -> None:
    for question in ("What is 1 plus 1?", "What is 2 plus 2?"):
        assert (await api.http.post("/v1/chat", json={"question": question, "wait_s": 0})).status_code in (200, 202)
    made = await post(api, {**BODY, "name": "chat"})
    assert made.status_code == 202
    assert (await api.get("/v1/jobs/chat"))["id"] == made.json()["id"]


# Polling a job counts it once in a while; a change of its state shows at once.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.cost = 0.0

    def __call__(self) -> float:
        return self.now


class CountingDatabase(Database):
    def __init__(self, database: Database, clock: Clock) -> None:
        self.engine = database.engine
        self.snapshots = 0
        self._clock = clock

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        self.snapshots += 1
        async with super().snapshot() as connection:
            yield connection
        self._clock.now += self._clock.cost


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def views(clock: Clock) -> JobViewCache:
    return JobViewCache(clock=clock)


@pytest.fixture
async def job(database: Database) -> str:
    await furnish(database, items=3)
    return str(await submit_job(database, "closed-book"))


async def complete_one(database: Database) -> None:
    await run_sql(database, "UPDATE samples SET state = 2, ended_at = now() WHERE id = (SELECT min(id) FROM samples)")


async def test_who_polls_soon_again_costs_no_count(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    assert (await views.get(counted, job)).request_counts.completed == 0
    await complete_one(database)
    clock.now = FRESH_S / 2
    assert (await views.get(counted, job)).request_counts.completed == 0
    clock.now = FRESH_S
    assert (await views.get(counted, job)).request_counts.completed == 1
    assert counted.snapshots == 2


async def test_a_change_of_state_shows_after_a_moment(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    found = await views.get(database, job)
    await cancel(database, found.id)
    clock.now = TRUSTED_S
    assert (await views.get(database, job)).state == "cancelling"


async def test_who_changes_a_job_here_sees_it_at_once(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    found = await views.get(database, job)
    await cancel(database, found.id)
    views.forget()
    assert (await views.get(database, job)).state == "cancelling"


async def test_who_polls_at_once_again_asks_nobody(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    first = await views.get(database, job)
    await run_sql(database, "UPDATE jobs SET name = 'another', version = version + 1")
    assert await views.get(database, job) is first
    clock.now = TRUSTED_S
    assert (await views.get(database, job)).name == "another"


async def test_who_polls_at_the_same_time_shares_a_count(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    await asyncio.gather(*(views.get(counted, job) for _ in range(5)))
    assert counted.snapshots == 1


async def test_what_was_dear_to_count_is_kept_longer(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    clock.cost = 1.0
    await views.get(counted, job)
    clock.now = 1.0 + COST * 1.0 - 0.1
    await views.get(counted, job)
    assert counted.snapshots == 1
    clock.now += 0.1
    await views.get(counted, job)
    assert counted.snapshots == 2


async def test_one_slow_count_does_not_freeze_the_progress(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    clock.cost = 60.0
    await views.get(counted, job)
    clock.now = 60.0 + OLDEST_S
    await views.get(counted, job)
    assert counted.snapshots == 2


async def test_an_ended_job_is_counted_once_for_all(
    database: Database, job: str, clock: Clock, views: JobViewCache
) -> None:
    counted = CountingDatabase(database, clock)
    await run_sql(database, "UPDATE samples SET state = 2, ended_at = now()")
    await run_sql(database, "UPDATE jobs SET state = 'completed', ended_at = now(), version = version + 1")
    await views.get(counted, job)
    clock.now = 1e6
    await views.get(counted, job)
    assert counted.snapshots == 1


async def test_an_unknown_job_is_not_found_in_job_view_cache(database: Database, views: JobViewCache) -> None:
    with pytest.raises(NotFound):
        await views.get(database, "nobody")


async def test_an_error_is_for_all_who_asked_and_is_not_kept(
    database: Database, clock: Clock, views: JobViewCache
) -> None:
    both = await asyncio.gather(*(views.get(database, "first") for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in both] == [NotFound, NotFound]
    await furnish(database, items=1)
    await submit_job(database, "closed-book", name="first")
    assert (await views.get(database, "first")).name == "first"
