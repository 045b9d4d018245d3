"""`residency: auto` on a real database: what is resident at once follows from the plan of all live jobs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from services.orchestrator.scheduling import scheduler as scheduler_module
from services.orchestrator.scheduling.demands import ModelCalls, Needs
from services.orchestrator.scheduling.scheduler import Scheduler, merge_needs
from shared.calls import Lane
from shared.queue import Ticker
from shared.settings import Device, Settings
from shared.storage.database import Database
from tests.integration.scene import furnish, model, run_sql, scalar, submit_job
from tests.integration.scheduling import advance, hold, wishes

pytestmark = pytest.mark.anyio

MIB = 96
Make = Callable[[int], Scheduler]


@pytest.fixture
async def scheduler(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
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


async def test_what_fits_together_is_resident_together(scheduler: Make, database: Database) -> None:
    judge, generator = await judging(database)
    await scheduler(2 * MIB).look()
    assert await wishes(database) == [(sorted([judge, generator]), "first")]
    found = await plan_of_row(database)
    assert found["predicted_mib"] == 2 * MIB
    assert found["why"].startswith("together: loads 2, flips 0")


async def test_what_does_not_fit_together_is_staged(scheduler: Make, database: Database) -> None:
    judge, generator = await judging(database)
    one = scheduler(2 * MIB - 1)
    await one.look()
    assert len(await wishes(database)) == 1
    found = await plan_of_row(database)
    assert found["why"].startswith("staged: loads 2, flips 1")
    await run_sql(database, "UPDATE residencies SET state = 'open', opened_at = now()")
    held = (await scalar(database, "SELECT models[1] FROM residencies"),)
    await run_sql(database, "DELETE FROM queue WHERE model_id = :m", m=held[0])
    await one.look()
    assert await wishes(database) == [([judge if held[0] == generator else generator], "drained")]


async def test_with_fewer_slots_two_models_may_fit(scheduler: Make, database: Database) -> None:
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
    await scheduler(2 * MIB - 40).look()
    assert await wishes(database) == [(sorted([judge, generator]), "first")]
    found = await plan_of_row(database)
    assert found["predicted_mib"] <= 2 * MIB - 40
    assert min(found["parallel"].values()) < 8


async def test_what_fits_nowhere_is_wanted_all_the_same(scheduler: Make, database: Database) -> None:
    await judging(database)
    await scheduler(MIB - 1).look()
    ((models, cause),) = await wishes(database)
    assert (len(models), cause) == (1, "first")  # type: ignore[arg-type]


async def test_a_device_with_work_makes_no_plan(
    scheduler: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, _ = await judging(database)
    await hold(database, judge)

    async def plan(*_: object) -> None:
        raise AssertionError("a plan was made")

    monkeypatch.setattr(scheduler_module.LivePlan, "groups", plan)
    await scheduler(2 * MIB).look()
    assert await wishes(database) == []


async def test_a_plan_that_cannot_be_made_does_not_stop_the_device(
    scheduler: Make, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def plan(*_: object, **__: object) -> None:
        raise ValueError("too many choices")

    monkeypatch.setattr(scheduler_module, "plan", plan)
    await judging(database)
    await scheduler(2 * MIB).look()
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
