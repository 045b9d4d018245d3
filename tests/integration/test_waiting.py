"""A server that many calls share is away: they wait uncharged, one of them tries, and after an hour they fail."""

import uuid
from collections.abc import AsyncIterator, Sequence

import pytest
from redis.asyncio import Redis

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
from shared.storage import jobs as stored_jobs
from shared.storage.database import Database
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
    rows,
    run_sql,
    scalar,
    submit_job,
    without_gold,
    worker,
)
from tests.integration.scheduling import Hands, wishes

pytestmark = pytest.mark.anyio

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


async def pending(database: Database, items: int = 5) -> uuid.UUID:
    await furnish(database, items)
    await without_gold(database)
    job = await submit_job(database, "closed-book")
    await advance(database)
    return job


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
    await pending(database)
    await wait(database, await claim(database, 2))
    assert (await scalar(database, UNTOUCHED), await scalar(database, ATTEMPTS)) == (5, 0)
    assert await claim(database) is None
    assert await claim_a_try(database) is None


async def test_one_call_tries_for_all_when_it_is_time(database: Database) -> None:
    await pending(database)
    await wait(database, await claim(database, 2))
    await let_it_be_time(database)
    trying = await claim_a_try(database)
    assert trying is not None
    assert (len(trying.calls), trying.tries) == (1, True)
    assert await claim_a_try(database) is None


async def test_each_try_is_another_call(database: Database) -> None:
    await pending(database)
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
    await pending(database)
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
    await furnish(database, 5)
    await without_gold(database)
    await submit_job(database, "sparse")
    await advance(database)
    await wait(database, await claim(database, role="sparse"))
    await submit_job(database, "dense", name="other")
    await drain(database, ScriptedExecutor())
    done = "SELECT j.name, count(*) FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.state = 2 GROUP BY j.name"
    assert await rows(database, done) == [("other", 5)]


async def test_the_pause_grows_and_is_bounded(database: Database) -> None:
    await pending(database)
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
    job = await pending(database)
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
    await pending(database)
    await wait(database, await claim(database, 2))
    await run_sql(database, "UPDATE outages SET since = now() - interval '2 hours'")
    assert await queue.sweep_outages(database, "sweeper", 3600) == []
    await run_sql(database, "UPDATE queue SET queued_at = queued_at - interval '2 hours'")
    await run_sql(database, "UPDATE outages SET tried_at = now() - interval '90 minutes'")
    assert await queue.sweep_outages(database, "sweeper", 3600) == []


async def test_a_failure_of_the_request_is_charged_as_before_and_ends_the_outage(database: Database) -> None:
    await pending(database, 1)
    await wait(database, await claim(database))
    await let_it_be_time(database)
    failure = Failure(kind=FailureKind.BACKEND_ERROR, detail="HTTP 500")
    await worker(database, Lane.GENERATE, ScriptedExecutor(lambda _: failure)).drain()
    assert await scalar(database, "SELECT tries FROM queue") == 1
    assert await scalar(database, "SELECT count(*) FROM outages") == 0


async def test_the_sweeper_fails_what_is_overdue(database: Database, redis_url: str) -> None:
    await pending(database)
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
    await pending(database)
    async with database.transaction() as connection:
        await queue.note_outage(connection, [await model(database)], "device cpu:0 to load it", "refused", 30)
    await run_sql(database, "UPDATE outages SET since = since - interval '1 h'")
    await scheduler.look()
    assert await wishes(database) == []
    await let_it_be_time(database)
    await scheduler.look()
    assert [cause for _, cause in await wishes(database)] == ["first"]


async def test_an_outage_that_nothing_waits_for_is_forgotten(database: Database) -> None:
    await pending(database)
    await wait(database, await claim(database, 2))
    await queue.sweep_outages(database, "sweeper", 3600)
    assert await scalar(database, "SELECT count(*) FROM outages") == 1
    await run_sql(database, "DELETE FROM queue")
    await queue.sweep_outages(database, "sweeper", 3600)
    assert await scalar(database, "SELECT count(*) FROM outages") == 0


async def test_a_job_says_what_it_waits_for(database: Database) -> None:
    await pending(database)
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
