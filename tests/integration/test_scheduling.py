"""The scheduler on a real database: what may be resident at once, and when it flips."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisDown
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling import scheduler as scheduler_module
from services.orchestrator.scheduling import scheduler as scheduling_scheduler
from services.orchestrator.scheduling.demands import MeasuredSecondsReader, ModelCalls, Needs
from services.orchestrator.scheduling.routines import Sweeper
from services.orchestrator.scheduling.scheduler import LivePlan, Scheduler, merge_needs
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import DeviceLease, Phase, RedisLease
from shared.lease.policy import DeviceResidency, ModelGroup, Target, WorkloadSnapshot
from shared.queue import Ticker
from shared.runtime import pins, queue
from shared.runtime.pins import ModelIdentity
from shared.runtime.queue import mark_ready_samples
from shared.settings import Device, Settings
from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.scene import Leases, ScriptedExecutor, furnish, model, rows, run_sql, scalar, submit_job, worker
from tests.integration.scheduling import DEVICE, Hands, advance, hold, wishes, work_for_the_generator

pytestmark = pytest.mark.anyio


# What may be resident at once, as a device's scheduler asks for it at its looks: of all live jobs, of one device.


ROOMY = Device(id="cpu:0", budget_mib=200)


def planner(device: Device = ROOMY) -> LivePlan:
    return LivePlan(scene.SETTINGS.model_copy(update={"device": device}), MeasuredSecondsReader(device.id))


async def groups(made: LivePlan, database: Database) -> Sequence[ModelGroup]:
    async with database.transaction() as connection:
        return await made.groups(connection)


async def together(made: LivePlan, database: Database) -> list[tuple[int, ...]]:
    return [group.models for group in await groups(made, database)]


async def on(database: Database, device: str, *names: str) -> list[int]:
    async with database.transaction() as connection:
        return [
            await pins.register(
                connection,
                ModelIdentity(
                    name=name, backend="scripted", digest=name, device=device, needs_lease=True, footprint_mib=96
                ),
            )
            for name in names
        ]


async def test_a_device_without_jobs_has_nothing_to_plan(database: Database) -> None:
    await scene.furnish(database)
    assert await groups(planner(), database) == ()


async def test_jobs_that_ask_different_models_share_a_residency_where_both_fit(database: Database) -> None:
    await scene.furnish(database)
    judge, generator = await on(database, "cpu:0", "a-judge", "a-generator")
    await scene.submit_job(database, "closed-book", name="one")
    made = planner()
    assert await together(made, database) == [(generator,)]
    await scene.submit_job(database, "closed-book", name="two", models={"generate": "a-judge"})
    assert await together(made, database) == [(judge, generator)]


async def test_each_device_plans_for_its_own_models_alone(database: Database) -> None:
    await scene.furnish(database)
    (judge,) = await on(database, "cpu:0", "a-judge")
    (generator,) = await on(database, "cpu:1", "a-generator")
    await scene.submit_job(database, "mathrag-gate")
    for device, expected in (("cpu:0", judge), ("cpu:1", generator)):
        made = planner(Device(id=device, budget_mib=100))
        assert await together(made, database) == [(expected,)]


async def test_a_job_that_is_paused_or_over_is_not_planned_for(database: Database) -> None:
    await scene.furnish(database)
    await scene.submit_job(database, "closed-book")
    for state in ("paused", "cancelling"):
        await scene.run_sql(database, "UPDATE jobs SET state = :state", state=state)
        assert await groups(planner(), database) == ()


async def test_a_plan_is_used_again_until_a_job_comes_or_its_time_is_over(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.furnish(database)
    await on(database, "cpu:0", "a-judge", "a-generator")
    await scene.submit_job(database, "closed-book")
    made = planner()
    first = await groups(made, database)
    monkeypatch.setattr(scheduling_scheduler, "TRUSTED_S", 3600)
    assert await groups(made, database) is first
    monkeypatch.setattr(scheduling_scheduler, "TRUSTED_S", 0)
    again = await groups(made, database)
    assert again is not first
    assert again == first
    monkeypatch.setattr(scheduling_scheduler, "TRUSTED_S", 3600)
    await scene.submit_job(database, "closed-book", name="another")
    assert await groups(made, database) is not again


async def test_a_job_that_cannot_be_read_is_left_out_of_the_plan(database: Database) -> None:
    await scene.furnish(database)
    first, second = await on(database, "cpu:0", "judge-1", "generator-1")
    await scene.submit_job(database, models={"judge": "judge-1", "generate": "generator-1"})
    alone = await together(planner(), database)
    await scene.submit_job(database, "closed-book", name="broken")
    await scene.run_sql(database, "UPDATE jobs SET params = '{\"renamed\": 1}' WHERE name = 'broken'")
    assert alone == [(first, second)]
    assert await together(planner(), database) == alone


# The scheduler on a real database: one flip per picture, and none while a reply may still change it.


@pytest.fixture
def settings(redis_url: str) -> Settings:
    return Settings(database_url="unused", redis_url=redis_url)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[Lane]:
    given: list[Lane] = []

    async def tick(_: Ticker, lane: Lane) -> None:
        given.append(lane)

    monkeypatch.setattr(Ticker, "tick", tick)
    return given


@pytest.fixture
def scheduler(settings: Settings, database: Database, redis: Redis, ticks: list[Lane]) -> Scheduler:
    return Scheduler(settings, database, redis)


async def test_work_for_a_model_that_is_not_resident_is_a_wish(scheduler: Scheduler, database: Database) -> None:
    generator = await work_for_the_generator(database)
    assert await scheduler.look() is not None
    assert await wishes(database) == [([generator], "first")]


async def test_the_lease_turns_to_draining_with_the_new_epoch(
    scheduler: Scheduler, database: Database, redis: Redis
) -> None:
    await work_for_the_generator(database)
    lease = RedisLease(redis, DEVICE)
    epoch = await hold(database, await model(database, "a-judge"))
    await lease.publish(epoch, Phase.OPEN, (1,))
    await scheduler.look()
    wanted = await scalar(database, "SELECT max(epoch) FROM residencies")
    assert await lease.read() == DeviceLease(epoch=int(str(wanted)), phase=Phase.DRAINING, models=())


async def test_two_schedulers_at_once_flip_once(
    settings: Settings, database: Database, redis: Redis, ticks: list[Lane]
) -> None:
    generator = await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    schedulers = [Scheduler(settings, database, redis) for _ in range(2)]
    decided = asyncio.Barrier(2)

    def in_step(one: Scheduler) -> None:
        flip = one._flip

        async def flip_together(previous: int, target: Target) -> None:
            await decided.wait()  # neither writes before both have decided
            await flip(previous, target)

        one._flip = flip_together  # type: ignore[method-assign]

    for one in schedulers:
        in_step(one)
    with anyio.fail_after(60):
        await asyncio.gather(*(one.look() for one in schedulers))
    assert await wishes(database) == [([generator], "drained")]


async def test_a_look_while_flipping_wants_nothing(scheduler: Scheduler, database: Database) -> None:
    generator = await work_for_the_generator(database)
    for _ in range(3):
        await scheduler.look()
    assert await wishes(database) == [([generator], "first")]


async def test_the_resident_model_keeps_the_device_while_it_has_calls(scheduler: Scheduler, database: Database) -> None:
    generator = await work_for_the_generator(database)
    await hold(database, generator)
    await scheduler.look()
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE queue SET token = gen_random_uuid(), claim_until = now() + interval '1 minute'")
        )
    await scheduler.look()
    assert await wishes(database) == []


async def test_a_ready_sample_holds_a_flip(scheduler: Scheduler, database: Database) -> None:
    await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE samples SET state = 0 WHERE id = (SELECT min(id) FROM samples)"))
    await scheduler.look()
    assert await wishes(database) == []


async def _accept_first_reply(database: Database) -> int:
    async with database.transaction() as connection:
        first = text("DELETE FROM queue WHERE seq = (SELECT min(seq) FROM queue) RETURNING call_id")
        call = int((await connection.execute(first)).scalar_one())
        await connection.execute(
            text(
                "INSERT INTO attempts (call_id, accepted, outcome, reply, worker, started_at, ended_at)"
                ' VALUES (:c, true, \'generated\', \'{"type":"generated","text":"x"}\', \'dead\', now(), now())'
            ),
            {"c": call},
        )
    return call


async def test_a_reply_whose_sample_is_not_marked_ready_prevents_a_flip(
    scheduler: Scheduler, database: Database, ticks: list[Lane]
) -> None:
    await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    await _accept_first_reply(database)
    await scheduler.look()
    assert await wishes(database) == []
    assert await scalar(database, "SELECT count(*) FROM samples WHERE state = 0") == 1
    assert ticks == [Lane.JUDGE]


async def test_a_sample_that_its_worker_marks_ready_after_the_snapshot_prevents_a_flip(
    scheduler: Scheduler, database: Database, ticks: list[Lane]
) -> None:
    await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    call = await _accept_first_reply(database)
    observe = scheduler.observer.observe

    async def observe_then_mark(connection: AsyncConnection) -> tuple[WorkloadSnapshot, DeviceResidency | None, bool]:
        observed = await observe(connection)
        assert await mark_ready_samples(database, [call])
        return observed

    scheduler.observer.observe = observe_then_mark  # type: ignore[method-assign]
    await scheduler.look()
    assert await wishes(database) == []


@pytest.mark.parametrize("reason", ["server_exit", "guard_restart"])
async def test_a_closed_residency_is_wanted_anew_with_its_reason_as_cause(
    scheduler: Scheduler, database: Database, reason: str
) -> None:
    generator = await work_for_the_generator(database)
    epoch = await hold(database, generator, "closed", reason)
    await scheduler.look()
    assert await wishes(database) == [([generator], reason)]
    assert int(str(await scalar(database, "SELECT max(epoch) FROM residencies"))) > epoch


async def test_quarantines_in_a_row_are_counted_until_one_opens(scheduler: Scheduler, database: Database) -> None:
    generator = await work_for_the_generator(database)
    counts = []
    for state in ("quarantined", "quarantined", "open", "quarantined"):
        async with database.transaction() as connection:
            newest = await residencies.find_newest(connection, DEVICE)
            epoch = await residencies.insert_wanted(
                connection, DEVICE, newest.epoch if newest else 0, [generator], "test"
            )
            assert epoch is not None
            await residencies.set_state(connection, epoch, state, datetime.now(UTC))
            _, held, _ = await scheduler.observer.observe(connection)
        assert held is not None
        counts.append((held.state, held.failures))
    assert counts == [("quarantined", 1), ("quarantined", 2), ("open", 0), ("quarantined", 1)]
    await scheduler.look()
    assert await wishes(database) == []  # too early


async def quarantine(database: Database, model_id: int) -> int:
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        epoch = await residencies.insert_wanted(connection, DEVICE, newest.epoch if newest else 0, [model_id], "test")
        assert epoch is not None
        await residencies.set_state(connection, epoch, "quarantined", datetime.now(UTC), "no Ollama")
        await queue.note_outage(connection, [model_id], "device cpu:0", "no Ollama", 60)
    await run_sql(database, "UPDATE outages SET since = now() - interval '1 hour'")
    return epoch


async def test_a_retry_that_is_requested_is_decided_on_at_once_and_shortens_no_later_pause(
    scheduler: Scheduler, database: Database, redis: Redis
) -> None:
    lease = RedisLease(redis, DEVICE)
    generator = await work_for_the_generator(database)
    assert not await queue.retry_device(database, lease, DEVICE)  # nothing is quarantined
    for _ in range(6):
        await quarantine(database, generator)
    await scheduler.run_once()
    assert await wishes(database) == []
    assert await queue.retry_device(database, lease, DEVICE)
    await scheduler.run_once()
    assert await wishes(database) == [([generator], "retry")]
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        assert newest is not None
        await residencies.set_state(connection, newest.epoch, "quarantined", datetime.now(UTC), "no Ollama")
        assert await residencies.count_failures(connection, DEVICE) == 7
    await scheduler.run_once()
    assert await wishes(database) == []


async def test_without_redis_a_quarantine_lasts_as_long_as_it_would(
    scheduler: Scheduler, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object, **__: object) -> bool:
        raise RedisDown("connection refused")

    generator = await work_for_the_generator(database)
    await quarantine(database, generator)
    monkeypatch.setattr(Redis, "get", down)
    await scheduler.run_once()
    assert await wishes(database) == []


async def test_a_dead_retriever_holds_a_flip_for_the_time_of_its_patience(
    scheduler: Scheduler, database: Database, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hands = Hands()
    monkeypatch.setattr(scheduler_module, "time", hands)
    generator = await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    await submit_job(database, "sparse", name="searching")
    await advance(database)
    for passed in (0.0, settings.patience_s):
        hands.now += passed
        await scheduler.look()
        assert await wishes(database) == []
    async with database.transaction() as connection:  # one search is answered: progress
        await connection.execute(
            text(
                "DELETE FROM queue WHERE seq = (SELECT min(seq) FROM queue q JOIN models m ON m.id = q.model_id"
                " WHERE NOT m.needs_lease)"
            )
        )
    hands.now += 1
    await scheduler.look()
    assert await wishes(database) == []
    hands.now += settings.patience_s + 1
    await scheduler.look()
    assert await wishes(database) == [([generator], "cpu_stalled")]


async def test_grades_never_hold_a_flip(scheduler: Scheduler, database: Database) -> None:
    await work_for_the_generator(database)
    await worker(database, Lane.GENERATE, ScriptedExecutor()).drain()
    assert await rows(database, "SELECT DISTINCT role FROM calls c JOIN queue q ON q.call_id = c.id") == [("grade",)]
    async with database.snapshot() as connection:
        picture, _, _ = await scheduler.observer.observe(connection)
    assert (picture.loads, picture.cpu_calls) == ((), 0)


async def test_with_redis_down_no_flip_begins(
    scheduler: Scheduler, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object, **__: object) -> bool:
        raise RedisDown("connection refused")

    await work_for_the_generator(database)
    await hold(database, await model(database, "a-judge"))
    monkeypatch.setattr(Redis, "ping", down)
    await scheduler.look()
    assert await wishes(database) == []


async def test_without_jobs_nothing_is_live(scheduler: Scheduler, database: Database) -> None:
    await furnish(database, 1)
    assert not await scheduler.look()
    await submit_job(database, "closed-book")
    assert await scheduler.look() is not None


async def test_the_sweep_ticks_the_lanes_that_have_work(
    settings: Settings, database: Database, redis: Redis, ticks: list[Lane]
) -> None:
    await work_for_the_generator(database)
    assert await Sweeper(settings, database, redis).run_once() == settings.sweep_s
    assert ticks == [Lane.GENERATE]


async def test_the_loop_outlives_a_failed_look_and_is_woken(
    scheduler: Scheduler, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, failures = scheduler.look, [RuntimeError("the database is away")]

    async def failing() -> bool:
        if failures:
            raise failures.pop()
        return await look()

    monkeypatch.setattr(scheduler, "look", failing)
    running = asyncio.create_task(scheduler.run())
    generator = await work_for_the_generator(database)
    scheduler.wake()
    with anyio.fail_after(60):
        while await wishes(database) != [([generator], "first")]:  # noqa: ASYNC110 - a row tells nobody
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("grader", "stages"),
    [("math", [Lane.JUDGE, Lane.GENERATE]), ("rubric", [Lane.JUDGE, Lane.GENERATE, Lane.JUDGE])],
)
async def test_gated_jobs_need_a_load_a_stage(
    scheduler: Scheduler, database: Database, grader: str, stages: list[Lane]
) -> None:
    await furnish(database, 6)
    for seed in (0, 1):
        await submit_job(
            database, params={"grading": {"grader": grader}, "seed": seed, "generate": {"max_tokens": 99 + seed}}
        )
    executor = ScriptedExecutor()
    names = {await model(database, "a-judge"): Lane.JUDGE, await model(database, "a-generator"): Lane.GENERATE}
    resident: list[int] = []

    for _ in range(20):
        for lane in Lane:
            one = worker(database, lane, executor)
            one.guards = Leases(DeviceLease(epoch=1, phase=Phase.OPEN, models=tuple(resident)))  # type: ignore[assignment]
            await one.drain()
        await scheduler.look()
        for models, _cause in await wishes(database):
            resident[:] = models  # type: ignore[assignment]
            async with database.transaction() as connection:
                newest = await residencies.find_newest(connection, DEVICE)
                assert newest is not None
                await residencies.set_state(connection, newest.epoch, "open", datetime.now(UTC))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",), ("completed",)]
    loads = await rows(database, "SELECT models FROM residencies ORDER BY epoch")
    assert [names[models[0]] for (models,) in loads] == stages  # type: ignore[index]


@pytest.mark.fault("V1")
@pytest.mark.parametrize("pins", ["[]", '{"judge": 5}', '{"judge": {"model_id": "a-judge"}}', '{"judge": {"id": 1}}'])
async def test_a_job_whose_pins_cannot_be_read_does_not_stop_the_device(
    scheduler: Scheduler, database: Database, seen: Seen, pins: str
) -> None:
    seen.describe("the stored pins of a live job are changed to a value that this release cannot read")
    generator = await work_for_the_generator(database)
    await submit_job(database, "closed-book", name="broken")
    await run_sql(database, "UPDATE jobs SET pins = CAST(:pins AS jsonb) WHERE name = 'broken'", pins=pins)
    await scheduler.look()
    await advance(database)
    await scheduler.look()
    assert await wishes(database) == [([generator], "first")]
    failed = await rows(
        database,
        "SELECT DISTINCT j.name, s.failure FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.state = 3",
    )
    assert failed == [("broken", "unreadable")]
    seen.note("its samples failed as unreadable; the device was flipped for the other job")


# `residency: auto` on a real database: what is resident at once follows from the plan of all live jobs.

MIB = 96
Make = Callable[[int], Scheduler]


@pytest.fixture
async def auto_scheduler(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    async def tick(*_: object) -> None:
        return

    monkeypatch.setattr(Ticker, "tick", tick)
    async with Redis.from_url(redis_url) as redis:

        def make(budget_mib: int) -> Scheduler:
            device = Device(residency="auto", budget_mib=budget_mib)
            return Scheduler(Settings(database_url="unused", redis_url=redis_url, device=device), database, redis)

        yield make


async def judging(database: Database) -> tuple[int, int]:
    await furnish(database)
    await run_sql(database, "UPDATE models SET footprint_mib = :mib WHERE needs_lease", mib=MIB)
    await submit_job(database, "closed-book", models={"generate": "a-judge"}, name="first", reuse="none")
    await submit_job(database, "closed-book", name="second", reuse="none")
    await advance(database)
    return await model(database, "a-judge"), await model(database, "a-generator")


async def plan_of_row(database: Database) -> Any:
    return await scalar(database, "SELECT plan FROM residencies WHERE state = 'wanted'")


async def test_what_fits_together_is_resident_together(auto_scheduler: Make, database: Database) -> None:
    judge, generator = await judging(database)
    await auto_scheduler(2 * MIB).look()
    assert await wishes(database) == [(sorted([judge, generator]), "first")]
    found = await plan_of_row(database)
    assert found["predicted_mib"] == 2 * MIB
    assert found["why"].startswith("together: loads 2, flips 0")


async def test_what_does_not_fit_together_is_staged(auto_scheduler: Make, database: Database) -> None:
    judge, generator = await judging(database)
    one = auto_scheduler(2 * MIB - 1)
    await one.look()
    assert len(await wishes(database)) == 1
    found = await plan_of_row(database)
    assert found["why"].startswith("staged: loads 2, flips 1")
    await run_sql(database, "UPDATE residencies SET state = 'open', opened_at = now()")
    held = (await scalar(database, "SELECT models[1] FROM residencies"),)
    await run_sql(database, "DELETE FROM queue WHERE model_id = :m", m=held[0])
    await one.look()
    assert await wishes(database) == [([judge if held[0] == generator else generator], "drained")]


async def test_with_fewer_slots_two_models_may_fit(auto_scheduler: Make, database: Database) -> None:
    judge, generator = await judging(database)
    shape = (
        '{"weights_bytes": 20000000, "layers": 8, "heads": 8, "kv_heads": 8, "head_dim": 64, "embedding": 512,'
        ' "vocabulary": 1000, "trained_context": 1024}'
    )
    await run_sql(
        database,
        'UPDATE models SET architecture = CAST(:shape AS jsonb), options = \'{"parallel": 8, "context": 512}\''
        " WHERE needs_lease",
        shape=shape,
    )
    await auto_scheduler(2 * MIB - 40).look()
    assert await wishes(database) == [(sorted([judge, generator]), "first")]
    found = await plan_of_row(database)
    assert found["predicted_mib"] <= 2 * MIB - 40
    assert min(found["parallel"].values()) < 8


async def test_what_fits_nowhere_is_wanted_all_the_same(auto_scheduler: Make, database: Database) -> None:
    await judging(database)
    await auto_scheduler(MIB - 1).look()
    ((models, cause),) = await wishes(database)
    assert (len(models), cause) == (1, "first")  # type: ignore[arg-type]


async def test_a_device_with_work_makes_no_plan(
    auto_scheduler: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, _ = await judging(database)
    await hold(database, judge)

    async def plan(*_: object) -> None:
        raise AssertionError("a plan was made")

    monkeypatch.setattr(scheduler_module.LivePlan, "groups", plan)
    await auto_scheduler(2 * MIB).look()
    assert await wishes(database) == []


async def test_a_plan_that_cannot_be_made_does_not_stop_the_device(
    auto_scheduler: Make, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def plan(*_: object, **__: object) -> None:
        raise ValueError("too many choices")

    monkeypatch.setattr(scheduler_module, "plan", plan)
    await judging(database)
    await auto_scheduler(2 * MIB).look()
    ((models, _),) = await wishes(database)
    assert len(models) == 1  # type: ignore[arg-type]
    assert "too many choices" in caplog.text


def test_what_several_jobs_want_is_added_up() -> None:
    judge, both = (
        ModelCalls(lane=Lane.JUDGE, calls=10, tokens=10),
        ModelCalls(lane=Lane.GENERATE, calls=5, tokens=512),
    )
    twice = Needs(wanted={1: judge, 2: both}, order=(1, 2, 1, 2))
    other = Needs(wanted={2: judge, 3: both}, order=(2, 3))
    assert merge_needs([other, twice]) == Needs(
        wanted={2: ModelCalls(lane=Lane.JUDGE, calls=15, tokens=512), 3: both, 1: judge}, order=(1, 2, 1, 2, 3)
    )
    assert merge_needs([]) == Needs(wanted={}, order=())
