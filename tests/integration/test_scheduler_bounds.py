"""What may not wait for a drain, on a real database: jobs that starve, questions online, the tail of a stream."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from services.orchestrator.scheduling import demands
from services.orchestrator.scheduling import scheduler as scheduler_module
from services.orchestrator.scheduling.demands import MeasuredSecondsReader, load_seconds
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.calls import Generate, Judge, Lane
from shared.lease import residencies
from shared.lease.policy import DeviceResidency, WorkloadSnapshot
from shared.params import Params
from shared.queue import Ticker
from shared.runtime import submit
from shared.samples import Library, Sample, Steps
from shared.settings import Device, Settings
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, furnish, model, rows, scalar, submit_job, worker
from tests.integration.scheduling import DEVICE, Hands, advance, hold, wishes

pytestmark = pytest.mark.anyio

MAX_WAIT, MAX_RESIDENCY, PATIENCE = 100.0, 1000.0, 10.0
BOUNDED = Device(max_wait_s=MAX_WAIT, max_residency_s=MAX_RESIDENCY, online_patience_s=PATIENCE)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(scheduler_module, "time", hands)
    monkeypatch.setattr(demands, "time", hands)
    return hands


@pytest.fixture
async def scheduler(
    database: Database, redis_url: str, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scheduler]:
    async def tick(*_: object) -> None:
        return

    monkeypatch.setattr(Ticker, "tick", tick)
    settings = Settings(database_url="unused", redis_url=redis_url, device=BOUNDED)
    async with Redis.from_url(redis_url) as redis:
        yield Scheduler(settings, database, redis)


async def job(database: Database, name: str, model_name: str, **fields: object) -> int:
    await submit_job(database, "closed-book", name=name, models={"generate": model_name}, **fields)
    await advance(database)
    return await model(database, model_name)


async def both_wait(database: Database) -> tuple[int, int]:
    await furnish(database)
    judge = await job(database, "busy", "a-judge")
    await hold(database, judge)
    return judge, await job(database, "starving", "a-generator")


async def seen(scheduler: Scheduler, database: Database) -> tuple[WorkloadSnapshot, DeviceResidency]:
    async with database.snapshot() as connection:
        work, held, _ = await scheduler.observer.observe(connection)
    assert held is not None
    return work, held


def starved_s(work: WorkloadSnapshot) -> dict[int, float | None]:
    return {load.model_id: load.starved_s for load in work.loads}


async def test_a_job_that_starves_is_flipped_for_when_it_has_waited_long_enough(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    _, generator = await both_wait(database)
    for passed in (0.0, MAX_WAIT):
        hands.now += passed
        await scheduler.look()
        assert await wishes(database) == []
    hands.now += 0.5
    await scheduler.look()
    assert await wishes(database) == [([generator], "aged")]
    plan: Any = await scalar(database, "SELECT plan FROM residencies WHERE state = 'wanted'")
    assert plan["starved_s"] == MAX_WAIT + 0.5
    assert plan["calls"][str(generator)] == 5


async def test_an_old_residency_gives_way_to_a_job_that_comes_and_starves(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    await furnish(database)
    await hold(database, await job(database, "busy", "a-judge"))
    await scheduler.look()
    hands.now += MAX_RESIDENCY + 1
    generator = await job(database, "starving", "a-generator")
    await scheduler.look()
    assert await wishes(database) == [([generator], "bounded")]


def mixed(sample: Sample, _params: Params, _library: Library) -> Steps:
    first, _ = yield [
        Generate(template="cot", question=sample.question),
        Judge(rubric="reasoning-quality", document=DOCUMENTS[0].hash),
    ]
    return scene.ended(str(first))


async def test_jobs_that_have_work_for_the_resident_model_do_not_starve(
    scheduler: Scheduler, database: Database, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.install(monkeypatch, "mixed", mixed)
    await furnish(database)
    for name in ("one", "other"):
        await submit_job(database, "mixed", name=name, reuse="none")
    await advance(database)
    await hold(database, await model(database, "a-judge"))
    for _ in range(20):
        hands.now += MAX_WAIT
        await scheduler.look()
    assert await wishes(database) == []
    work, held = await seen(scheduler, database)
    assert set(starved_s(work).values()) == {None}
    assert held.open_s == 19 * MAX_WAIT


async def test_a_job_does_not_starve_while_a_sample_of_it_can_be_advanced(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    _, generator = await both_wait(database)
    await scene.run_sql(
        database,
        "UPDATE samples SET state = 0 WHERE id = (SELECT max(s.id) FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE j.name = 'starving')",
    )
    hands.now += MAX_WAIT
    work, _ = await seen(scheduler, database)
    assert starved_s(work)[generator] is None


async def test_whoever_was_served_starves_from_the_beginning(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    judge, generator = await both_wait(database)
    await scheduler.look()
    hands.now += MAX_WAIT / 2
    work, _ = await seen(scheduler, database)
    assert starved_s(work)[generator] == MAX_WAIT / 2
    for served in (generator, judge):
        await hold(database, served)
        hands.now += 1
        work, _ = await seen(scheduler, database)
    assert starved_s(work) == {judge: None, generator: 0.0}


async def test_a_job_of_a_model_that_nobody_serves_starves_for_itself(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    _, generator = await both_wait(database)
    await scene.run_sql(database, "UPDATE models SET served = false WHERE id = :m", m=generator)
    await scheduler.look()
    hands.now += 100 * MAX_WAIT
    await scheduler.look()
    assert await wishes(database) == []


async def ask(database: Database, model_name: str = "a-generator") -> int:
    await scene.add_dataset(database, 1, "question")
    return await job(database, "chat", model_name, dataset="question", rank=submit.RANK, online=True, reuse="none")


async def test_a_question_waits_for_its_patience_and_is_flipped_for_then(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    await furnish(database)
    await hold(database, await job(database, "busy", "a-judge"))
    generator = await ask(database)
    for passed in (0.0, PATIENCE - 0.1):
        hands.now += passed
        await scheduler.look()
        assert await wishes(database) == []
    hands.now += 0.1
    await scheduler.look()
    assert await wishes(database) == [([generator], "online")]


async def test_the_way_back_is_an_ordinary_flip(scheduler: Scheduler, database: Database, hands: Hands) -> None:
    await furnish(database)
    judge = await job(database, "busy", "a-judge")
    generator = await ask(database)
    await hold(database, generator)
    await scheduler.look()
    assert await wishes(database) == []
    asked = await scene.claim(database, 1)
    assert asked is not None
    await scene.answer(database, asked)
    await advance(database)
    await scheduler.look()
    assert await wishes(database) == [([judge], "drained")]


async def test_a_question_for_the_resident_model_is_in_the_next_chunk(database: Database) -> None:
    await furnish(database, 20)
    await job(database, "busy", "a-generator")
    executor = ScriptedExecutor()
    chunks: list[set[str]] = []
    run = executor.run

    async def asking(calls: Any, epoch: int | None) -> AsyncIterator[Any]:
        if not chunks:
            await ask(database)
        chunks.append({await name_of(database, call.id) for call in calls})
        async for each in run(calls, epoch):
            yield each

    executor.run = asking  # type: ignore[method-assign]
    await worker(database, Lane.GENERATE, executor, chunk=4, streams=1).drain()
    assert len(chunks) > 3
    assert chunks[:3] == [{"busy"}, {"busy", "chat"}, {"busy"}]


async def name_of(database: Database, call: int) -> str:
    return str(
        await scalar(
            database,
            "SELECT j.name FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
            " WHERE t.call_id = :call",
            call=call,
        )
    )


@pytest.mark.parametrize(("first", "second"), [(100, 0), (0, 100), (200, 100)])
async def test_a_call_that_two_jobs_wait_for_is_as_urgent_as_the_more_urgent_one(
    database: Database, first: int, second: int
) -> None:
    await furnish(database)
    for rank in (first, second):
        await job(database, f"of rank {rank}", "a-generator", rank=rank)
    assert await rows(database, "SELECT count(*), place >> 47 AS rank FROM queue GROUP BY rank") == [
        (5, min(first, second))
    ]


async def test_samples_of_two_jobs_in_one_batch_ask_with_the_more_urgent_rank(database: Database) -> None:
    await furnish(database)
    for rank in (0, 100):
        await submit_job(database, "closed-book", name=f"of rank {rank}", rank=rank)
    await advance(database)
    assert await rows(database, "SELECT count(*), place >> 47 AS rank FROM queue GROUP BY rank") == [(5, 0)]


async def flipped(database: Database, model_id: int, *, load_s: float, apart_s: float) -> None:
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        at = datetime.now(UTC)
        epoch = await residencies.insert_wanted(
            connection, DEVICE, newest.epoch if newest else 0, [model_id], "drained"
        )
        assert epoch is not None
        if newest is not None:
            await residencies.set_state(connection, newest.epoch, "closed", at)
        await residencies.record_server(connection, epoch, {"model": model_id, "seconds": load_s})
        await residencies.set_state(connection, epoch, "open", at + timedelta(seconds=apart_s))


async def stream(database: Database, scheduler: Scheduler) -> tuple[int, int]:
    await furnish(database)
    judge, generator = await model(database, "a-judge"), await model(database, "a-generator")
    for each, load_s in ((judge, 1.0), (generator, 7.0), (judge, 1.0), (generator, 7.0), (judge, 1.0)):
        await flipped(database, each, load_s=load_s, apart_s=load_s + 1.0)
    for name in ("one", "other"):
        await job(database, name, "a-generator", reuse="none")
    # However slow the machine is: they came just now.
    await scene.run_sql(database, "UPDATE jobs SET created_at = now() + interval '1 hour'")
    await slow_calls(database, 0.05)
    return judge, generator


async def slow_calls(database: Database, seconds: float) -> None:
    claimed = await scene.claim(database, 1)
    assert claimed is not None
    reply = scene.answered(claimed.calls[0])
    ended = reply.receipt.started_at + timedelta(seconds=seconds)
    receipt = replace(reply.receipt, ended_at=ended, epoch=1, device=DEVICE, concurrency=1)
    await scene.Claims(database, "worker-1", 60.0).answer(claimed.token, [replace(reply, receipt=receipt)])
    await advance(database)


async def test_what_a_flip_and_a_call_took_is_measured(scheduler: Scheduler, database: Database) -> None:
    judge, generator = await stream(database, scheduler)
    work, held = await seen(scheduler, database)
    (waiting,) = (load for load in work.loads if load.model_id == generator)
    assert waiting.load_s == pytest.approx(8.0)
    assert waiting.call_s == pytest.approx(0.05)
    assert held.models == (judge,)
    assert held.load_s == pytest.approx(2.0)


async def test_calls_that_ran_side_by_side_share_the_time_in_which_at_least_one_of_them_ran(database: Database) -> None:
    await furnish(database, items=6)
    generator = await job(database, "one", "a-generator", reuse="none")
    claimed = await scene.claim(database, 6)
    assert claimed is not None
    began = datetime.now(UTC)
    # Four begin together, one begins while they run, and one ten seconds later: 3 s and 1 s for six calls.
    spans = ((0, 2), (0, 2), (0, 2), (0, 2), (1, 3), (13, 14))
    answers = []
    for call, (start, end) in zip(claimed.calls, spans, strict=True):
        reply = scene.answered(call)
        started_at, ended_at = began + timedelta(seconds=start), began + timedelta(seconds=end)
        receipt = replace(reply.receipt, started_at=started_at, ended_at=ended_at, epoch=1, device=DEVICE)
        answers.append(replace(reply, receipt=replace(receipt, concurrency=len(answers) + 1)))
    await scene.Claims(database, "worker-1", 60.0).answer(claimed.token, answers)
    async with database.transaction() as connection:
        measured = await MeasuredSecondsReader(DEVICE).read(connection)
    assert measured.call_s == {generator: pytest.approx(4 / 6)}


async def test_the_tail_of_a_stream_waits_for_more_and_not_for_long(
    scheduler: Scheduler, database: Database, hands: Hands
) -> None:
    judge, generator = await stream(database, scheduler)
    for _ in range(8):
        await scheduler.look()
        assert await wishes(database) == []
        hands.now += 0.99
    await job(database, "more", "a-judge", reuse="none")  # is worked on: no idle time
    await scheduler.look()
    hands.now += 60
    await scheduler.look()
    await scene.run_sql(database, "DELETE FROM queue WHERE model_id = :m", m=judge)
    for _ in range(2):
        await scheduler.look()
        hands.now += 0.05
    assert await wishes(database) == []
    hands.now += 1
    await scheduler.look()
    assert await wishes(database) == [([generator], "drained")]
    plan: Any = await scalar(database, "SELECT plan FROM residencies WHERE state = 'wanted'")
    assert plan["idle_s"] >= plan["flip_s"] == pytest.approx(8.0)


async def test_a_job_alone_does_not_wait_for_its_tail(scheduler: Scheduler, database: Database) -> None:
    _, generator = await stream(database, scheduler)
    await scene.run_sql(
        database, "UPDATE jobs SET created_at = now() - interval '1 hour' WHERE id = (SELECT min(id) FROM jobs)"
    )
    await scheduler.look()
    assert await wishes(database) == [([generator], "drained")]


def test_the_figure_of_a_load_is_the_median_of_the_newest() -> None:
    server = {"model": 1, "seconds": 2.0}
    newest = [([server], 3.0), ([server], 300.0), ([server], None), ([server], 3.0), ([server], 2.5)]
    assert load_seconds([*newest, *[([server], 99.0)] * 9]) == {1: 3.0}
    assert load_seconds([([server, {"model": 2, "seconds": 1.0}], 4.0)]) == {1: 2.5, 2: 1.5}
    assert load_seconds([([server], 0.5)]) == {1: 2.0}  # a clock that was set
    assert load_seconds([([], 1.0)]) == {}
