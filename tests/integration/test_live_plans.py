"""What may be resident at once, as a device's scheduler asks for it at its looks: of all live jobs, of one device."""

from collections.abc import Sequence

import pytest

from services.orchestrator.scheduling import scheduler
from services.orchestrator.scheduling.demands import MeasuredSecondsReader
from services.orchestrator.scheduling.scheduler import LivePlan
from shared.lease.policy import ModelGroup
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.settings import Device
from shared.storage.database import Database
from tests.integration import scene

pytestmark = pytest.mark.anyio

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
    monkeypatch.setattr(scheduler, "TRUSTED_S", 3600)
    assert await groups(made, database) is first
    monkeypatch.setattr(scheduler, "TRUSTED_S", 0)
    again = await groups(made, database)
    assert again is not first
    assert again == first
    monkeypatch.setattr(scheduler, "TRUSTED_S", 3600)
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
