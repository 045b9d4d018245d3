import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import fastapi.routing
import pytest
from redis.asyncio import Redis

from services.orchestrator.polling import Polls
from services.orchestrator.scheduling import scheduler as scheduler_module
from services.orchestrator.scheduling.routines import Sweeper
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.audit import check
from shared.calls import Lane
from shared.queue import Ticker
from shared.replies import Failure, FailureKind
from shared.runtime import queue
from shared.runtime.queue import Claim, ClaimedCall, Claims
from shared.runtime.worker import CallEnd, Wait
from shared.settings import Settings, Workers
from shared.storage import jobs
from shared.storage import jobs as stored_jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.scene import (
    ScriptedExecutor,
    SilentTicker,
    advance,
    claim,
    drain,
    furnish,
    job_states,
    let_pauses_pass,
    model,
    queue_job,
    rows,
    run_sql,
    scalar,
    submit_job,
    without_gold,
    worker,
)
from tests.integration.scheduling import Hands, wishes

# `/v1/jobs/{job}/events`: what a watcher is told while a job runs, and where it goes on after it was cut off.


pytestmark = pytest.mark.anyio

GATED = {"pipeline": "mathrag-gate", "params": {"gate": {"min_pairs": 5, "tau": 1}}}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async def at_once() -> None:
        await asyncio.sleep(0)

    await scene.furnish(database)
    async with serving(database, redis_url, polls=Polls(at_once)) as serving_api:
        yield serving_api


class Event(NamedTuple):
    id: str
    name: str
    data: Any


def read(body: str) -> list[Event]:
    found = []
    for block in body.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if line and not line.startswith(":")]
        fields = {name: value for name, _, value in lines}
        if fields:
            found.append(Event(fields["id"], fields["event"], json.loads(fields["data"])))
    return found


async def watch(api: Api, job: Any, last: str | None = None) -> list[Event]:
    headers = {} if last is None else {"Last-Event-ID": last}
    reply = await api.http.get(job["links"]["events"], headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return read(reply.text)


def states(events: list[Event]) -> list[str]:
    return [event.data["state"] for event in events if event.name == "state"]


async def test_a_watcher_sees_the_job_from_its_beginning_to_its_end(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    watching = asyncio.create_task(watch(api, job))
    await finished(database)
    events = await watching
    assert states(events) == ["preparing", "running", "finalizing", "completed"]
    assert [event.data["strategy"] for event in events if event.name == "gate"] == ["judge"]
    assert events[-1].name == "state"
    progress = [event.data for event in events if event.name == "progress"]
    assert progress[-1]["request_counts"]["completed"] == 5
    assert progress[-1]["stages"]["generate"] == {"done": 5, "total": 5}


async def test_counters_never_go_back(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    watching = asyncio.create_task(watch(api, job))
    await finished(database)
    progress = [event.data for event in await watching if event.name == "progress"]
    for before, after in pairwise(progress):
        assert before["request_counts"]["completed"] <= after["request_counts"]["completed"]
        for role, count in before["stages"].items():
            assert count["done"] <= after["stages"][role]["done"]
            assert count["total"] <= after["stages"][role]["total"]


async def test_a_client_that_was_cut_off_goes_on_exactly_there(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    await finished(database)
    events = await watch(api, job)
    assert len(events) >= 6
    for number, event in enumerate(events[:-1]):
        assert await watch(api, job, event.id) == events[number + 1 :]


async def test_a_client_that_has_seen_the_end_is_told_to_stop_reconnecting(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    before = await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert before.status_code == 202
    await scene.repair(database)
    last = (await watch(api, job))[-1].id
    reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": last})
    assert (reply.status_code, reply.content) == (204, b"")
    assert states(await watch(api, job))[-1] == "cancelled"


async def test_a_change_after_the_end_is_still_told(api: Api, database: Database) -> None:
    job = await api.job(**GATED)
    await finished(database)
    last = (await watch(api, job))[-1].id
    ended = await api.http.get(f"/v1/jobs/{job['id']}")
    changed = await api.http.patch(
        f"/v1/jobs/{job['id']}", json={"name": "renamed"}, headers={"If-Match": ended.headers["etag"]}
    )
    assert changed.status_code == 200
    (event,) = await watch(api, job, last)
    reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": event.id})
    assert reply.status_code == 204


async def test_a_pause_and_a_change_are_told(api: Api, database: Database) -> None:
    job = await api.job()
    for verb in ("pause", "resume", "cancel"):
        await api.http.post(f"/v1/jobs/{job['id']}/{verb}")
    await scene.repair(database)
    events = await watch(api, job)
    assert states(events) == ["preparing", "running", "paused", "running", "cancelling", "cancelled"]
    assert [event.data["version"] for event in events if event.name == "state"] == [1, 2, 3, 4, 5, 6]


async def test_an_id_that_is_not_the_jobs_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    job = await api.job()
    for last in ("", "x", "1.0", "9.0.-", "2.0.-;"):
        with subtests.test(last=last):
            reply = await api.http.get(job["links"]["events"], headers={"Last-Event-ID": last})
            assert (reply.status_code, reply.json()["type"]) == (400, "urn:mathrag:bad_request")
            assert (await api.http.get("/v1/jobs/nobody/events")).status_code == 404


async def test_many_watchers_cost_one_read_a_poll(
    database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, all_look, go, look = 0, asyncio.Event(), asyncio.Event(), jobs.take_snapshot

    async def counted(database: Database, job: int) -> jobs.JobSnapshot:
        nonlocal reads
        reads += 1
        if reads == 20:
            all_look.set()
        return await look(database, job)

    monkeypatch.setattr(jobs, "take_snapshot", counted)
    await scene.furnish(database)
    async with serving(database, redis_url, polls=Polls(go.wait)) as api:
        job = await api.job()
        watching = [asyncio.create_task(watch(api, job)) for _ in range(20)]
        await all_look.wait()
        await finished(database)
        assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        go.set()
        ended = await asyncio.gather(*watching)
    assert all(states(events)[-1] == "completed" for events in ended)
    assert reads == 21


async def test_a_comment_keeps_a_quiet_stream_alive(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fastapi.routing._PING_INTERVAL == 15  # type: ignore[attr-defined]
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.001)
    job = await api.job()
    reading = asyncio.create_task(api.http.get(job["links"]["events"]))
    await finished(database)
    body = (await reading).text
    assert "\n: ping\n\n" in f"\n{body}"
    assert states(read(body))[-1] == "completed"


# A server that many calls share is away: they wait uncharged, one of them tries, and after an hour they fail.

WHAT = "Elasticsearch at 127.0.0.1:9200"
UNTOUCHED = "SELECT count(*) FROM queue WHERE token IS NULL AND tries = 0 AND lapses = 0"
ATTEMPTS = "SELECT count(*) FROM attempts"


class Outage:
    def __init__(self, *roles: str) -> None:
        self.roles = roles
        self.over = False
        self.tried: list[int] = []
        """Calls that found it away."""
        self._executor = ScriptedExecutor()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        if calls[0].role in self.roles and not self.over:
            self.tried += [call.id for call in calls]
            for call in calls:
                yield Wait(call.id, WHAT, "connection refused")
            return
        async for ended in self._executor.run(calls, epoch):
            yield ended


async def wait(database: Database, taken: Claim | None) -> None:
    assert taken is not None
    calls = [call.id for call in taken.calls]
    await Claims(database, "worker-1", 60.0).wait(taken.token, calls, taken.calls[0].model_id, WHAT, "refused")
    await let_pauses_pass(database)


async def claim_a_try(database: Database) -> Claim | None:
    model_id = await model(database)
    return await Claims(database, "worker-2", 60.0).claim(Lane.GENERATE, model_id, 100, away=True)


async def let_it_be_time(database: Database) -> None:
    await run_sql(database, "UPDATE outages SET next_try = now()")


async def let_it_last(database: Database, seconds: float) -> None:
    await run_sql(database, "UPDATE outages SET since = since - make_interval(secs => :s), tried_at = now()", s=seconds)
    await run_sql(database, "UPDATE queue SET queued_at = queued_at - make_interval(secs => :s)", s=seconds)


async def test_what_waits_is_not_charged_and_is_not_claimed(database: Database) -> None:
    await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    assert (await scalar(database, UNTOUCHED), await scalar(database, ATTEMPTS)) == (5, 0)
    assert await claim(database) is None
    assert await claim_a_try(database) is None


async def test_one_call_tries_for_all_when_it_is_time(database: Database) -> None:
    await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    await let_it_be_time(database)
    trying = await claim_a_try(database)
    assert trying is not None
    assert (len(trying.calls), trying.tries) == (1, True)
    assert await claim_a_try(database) is None


async def test_each_try_is_another_call(database: Database) -> None:
    await queue_job(database, 5)
    outage = Outage("generate")
    generator = worker(database, Lane.GENERATE, outage)
    for _ in range(4):
        await let_it_be_time(database)
        await run_sql(database, "UPDATE queue SET not_before = not_before - interval '1 hour'")
        await generator.drain()
    first, *tries = outage.tried[:5], *outage.tried[5:]
    assert len(first) == 5
    assert len(set(tries)) == len(tries) == 3


async def test_when_it_answers_all_come_back_at_once(database: Database) -> None:
    await queue_job(database, 5)
    outage = Outage("generate")
    await drain(database, outage)
    assert len(outage.tried) == 5
    outage.over = True
    await let_it_be_time(database)
    await let_pauses_pass(database)
    await drain(database, outage)
    assert await rows(database, "SELECT model_id FROM outages") == []
    assert await rows(database, "SELECT DISTINCT state FROM samples") == [(2,)]


async def test_calls_of_other_models_of_the_lane_go_on(database: Database) -> None:
    await queue_job(database, 5, pipeline="sparse")
    await wait(database, await claim(database, role="sparse"))
    await submit_job(database, "dense", name="other")
    await drain(database, ScriptedExecutor())
    done = "SELECT j.name, count(*) FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.state = 2 GROUP BY j.name"
    assert await rows(database, done) == [("other", 5)]


async def test_the_pause_grows_and_is_bounded(database: Database) -> None:
    await queue_job(database, 5)
    model_id = await model(database)
    pauses = []
    for lasted in (0, 2, 40, 9000):
        await run_sql(database, "UPDATE outages SET since = now() - make_interval(secs => :s)", s=lasted)
        async with database.transaction() as connection:
            await queue.note_outage(connection, [model_id], WHAT, "refused")
        pauses.append(
            round(float(str(await scalar(database, "SELECT extract(epoch FROM next_try - tried_at) FROM outages"))))
        )
    assert pauses == [1, 1, 10, 30]


async def test_after_the_operators_time_calls_fail_as_unavailable(database: Database) -> None:
    job = await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    await let_it_last(database, 3599)
    assert await queue.sweep_outages(database, "sweeper", 3600) == []
    await let_it_last(database, 2)
    assert len(await queue.sweep_outages(database, "sweeper", 3600)) == 5
    await drain(database, ScriptedExecutor())
    found = await rows(database, "SELECT DISTINCT failure, detail LIKE :d FROM samples", d=f"waited 360_ s for {WHAT}%")
    assert found == [("unavailable", True)]
    assert await job_states(database) == ["completed"]
    assert await check(database, job) == []


async def test_a_call_waits_its_own_time(database: Database) -> None:
    await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    await run_sql(database, "UPDATE outages SET since = now() - interval '2 hours'")
    assert await queue.sweep_outages(database, "sweeper", 3600) == []
    await run_sql(database, "UPDATE queue SET queued_at = queued_at - interval '2 hours'")
    await run_sql(database, "UPDATE outages SET tried_at = now() - interval '90 minutes'")
    assert await queue.sweep_outages(database, "sweeper", 3600) == []


async def test_a_failure_of_the_request_is_charged_as_before_and_ends_the_outage(database: Database) -> None:
    await queue_job(database, 1)
    await wait(database, await claim(database))
    await let_it_be_time(database)
    failure = Failure(kind=FailureKind.BACKEND_ERROR, detail="HTTP 500")
    await worker(database, Lane.GENERATE, ScriptedExecutor(lambda _: failure)).drain()
    assert await scalar(database, "SELECT tries FROM queue") == 1
    assert await scalar(database, "SELECT count(*) FROM outages") == 0


async def test_the_sweeper_fails_what_is_overdue(database: Database, redis_url: str) -> None:
    await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    await let_it_last(database, 11)
    settings = Settings(database_url="unused", redis_url=redis_url, workers=Workers(outage_s=10))
    sweeper = Sweeper(settings, database, None)  # type: ignore[arg-type]
    sweeper.ticker = SilentTicker()  # type: ignore[assignment]
    await sweeper.run_once()
    assert await scalar(database, "SELECT count(*) FROM attempts WHERE outcome = 'unavailable' AND accepted") == 5


@pytest.fixture
async def scheduler(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scheduler]:
    async def tick(_: Ticker, lane: Lane) -> bool:
        return True

    monkeypatch.setattr(Ticker, "tick", tick)
    async with Redis.from_url(redis_url) as redis:
        yield Scheduler(Settings(database_url="unused", redis_url=redis_url), database, redis)


async def test_calls_that_wait_for_a_server_hold_back_a_flip_for_no_longer_than_the_patience(
    scheduler: Scheduler, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    monkeypatch.setattr(scheduler_module, "time", hands)
    await furnish(database, 3)
    await without_gold(database)
    await submit_job(database, "closed-book")
    await submit_job(database, "mathrag-gate", name="searches")
    await advance(database)
    await scheduler.look()
    assert await wishes(database) == []
    for role in ("dense", "sparse"):
        await wait(database, await claim(database, role=role))
    await scheduler.look()
    assert await wishes(database) == []
    hands.now += Settings(database_url="unused").patience_s + 1
    await scheduler.look()
    assert [cause for _, cause in await wishes(database)] == ["cpu_stalled"]


async def test_a_leased_model_that_is_away_is_loaded_again_when_it_is_time_to_try(
    scheduler: Scheduler, database: Database
) -> None:
    await queue_job(database, 5)
    async with database.transaction() as connection:
        await queue.note_outage(connection, [await model(database)], "device cpu:0 to load it", "refused", 30)
    await run_sql(database, "UPDATE outages SET since = since - interval '1 h'")
    await scheduler.look()
    assert await wishes(database) == []
    await let_it_be_time(database)
    await scheduler.look()
    assert [cause for _, cause in await wishes(database)] == ["first"]


async def test_an_outage_that_nothing_waits_for_is_forgotten(database: Database) -> None:
    await queue_job(database, 5)
    await wait(database, await claim(database, 2))
    await queue.sweep_outages(database, "sweeper", 3600)
    assert await scalar(database, "SELECT count(*) FROM outages") == 1
    await run_sql(database, "DELETE FROM queue")
    await queue.sweep_outages(database, "sweeper", 3600)
    assert await scalar(database, "SELECT count(*) FROM outages") == 0


async def test_a_job_says_what_it_waits_for(database: Database) -> None:
    await queue_job(database, 5)
    await submit_job(database, "sparse", name="other")
    await advance(database)
    await wait(database, await claim(database, 2))
    [(since, next_try)] = await rows(database, "SELECT since, next_try FROM outages")
    found = await stored_jobs.get(database, "a-job")
    assert [(each.what, each.said, each.since, each.next_try) for each in found.waiting] == [
        (WHAT, "refused", since, next_try)
    ]
    assert (await stored_jobs.get(database, "other")).waiting == ()
    assert [len(job.waiting) for job in (await stored_jobs.list_jobs(database, 10)).data] == [0, 1]
