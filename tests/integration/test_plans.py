from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from shared.replies import Failure, FailureKind, Reply
from shared.runtime import lifecycle, pins
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings, TokenPrice
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant

# What a job costs, of the rows of its calls and the prices that are configured when its report is asked for.


pytestmark = pytest.mark.anyio

JUDGE = TokenPrice(prompt=2.0, completion=10.0)
GENERATOR = TokenPrice(prompt=0.5, completion=4.0)
JUDGED = {"quality": "judge"}
COUNTED = "UPDATE attempts SET prompt_tokens = 1000, completion_tokens = 100"
"""Made-up tokens of every call."""


async def reports(
    database: Database, redis_url: str, plant: Plant, prices: Mapping[str, TokenPrice], counted: str = COUNTED
) -> list[Any]:
    models = {name: Model(driver="scripted", price=prices.get(name)) for name in ("a-judge", "a-generator")}
    await scene.furnish(database)
    settings = scene.SETTINGS.model_copy(update={"models": models})
    async with serving(database, redis_url, settings) as api:
        for name in ("one", "two"):
            await api.job("mathrag-gate", name=name, params=JUDGED)
            await finished(database)
        await plant(counted)
        return [await api.get(f"/v1/jobs/{name}/report") for name in ("one", "two")]


async def test_a_job_costs_its_tokens_at_the_configured_prices(
    database: Database, redis_url: str, plant: Plant
) -> None:
    first, second = await reports(database, redis_url, plant, {"a-judge": JUDGE, "a-generator": GENERATOR})
    # A call of the judge: 1000 x 2.0 + 100 x 10.0 millionths; of the generator: 1000 x 0.5 + 100 x 4.0.
    judged = first["calls_made"]["judge"] * 0.003
    generated = first["calls_made"]["generate"] * 0.0009
    assert generated > 0
    assert first["cost"]["made"] == pytest.approx(judged + generated)
    assert first["cost"]["all"] == pytest.approx(judged + generated)
    assert first["cost"]["models"] == pytest.approx({"a-judge": judged, "a-generator": generated})
    assert second["cost"]["made"] == 0
    assert second["cost"]["all"] == pytest.approx(judged + generated)
    assert first["stages"]["judge"]["prompt_tokens"] == 1000 * first["calls_made"]["judge"]


async def test_a_model_without_a_price_leaves_the_cost_unknown(
    database: Database, redis_url: str, plant: Plant
) -> None:
    first, _ = await reports(database, redis_url, plant, {"a-judge": JUDGE})
    assert (first["cost"]["made"], first["cost"]["all"], first["cost"]["models"]["a-generator"]) == (None, None, None)
    assert first["cost"]["models"]["a-judge"] == pytest.approx(first["calls_made"]["judge"] * 0.003)


async def test_a_job_that_made_no_call_of_an_unpriced_model_does_not_cost_nothing(
    database: Database, redis_url: str, plant: Plant
) -> None:
    _, second = await reports(database, redis_url, plant, {})
    assert (second["cost"]["made"], second["cost"]["all"]) == (None, None)


async def test_replies_without_token_counts_leave_the_cost_unknown(
    database: Database, redis_url: str, plant: Plant
) -> None:
    prices = {"a-judge": JUDGE, "a-generator": GENERATOR}
    uncounted = "UPDATE attempts SET prompt_tokens = NULL, completion_tokens = NULL"
    first, _ = await reports(database, redis_url, plant, prices, uncounted)
    assert first["cost"] == {"made": None, "all": None, "models": {"a-judge": None, "a-generator": None}}


async def test_a_job_that_no_model_has_answered_has_no_cost(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    async with serving(database, redis_url) as api:
        await api.job(name="one")
        assert (await api.get("/v1/jobs/one/report"))["cost"] is None


# Plans of jobs that run: of a gate at each of its stages, on one device and on two, of jobs that share calls.

ITEMS = 6
GATE: dict[str, Any] = {"candidates": 4, "gate": {"items": 2, "on_unusable": "rules"}}
"""With so few pairs the judge is chosen; with a judge that gives no ratings, rules are."""
MUTE = Failure(kind=FailureKind.UNPARSED, detail="no rating")
FIRST, SECOND = Device(id="cpu:0", budget_mib=160), Device(id="cpu:1", budget_mib=100)
ROLES = ("dense", "sparse", "judge", "generate", "grade")


def settings(*devices: Device, **configured: Model) -> Settings:
    both = {name: Model(driver="scripted", parallel=4) for name in ("a-judge", "a-generator")}
    changed = {"device": devices[0], "devices": devices[1:], "models": configured or both}
    return scene.SETTINGS.model_copy(update=changed)


async def register(database: Database, **device_of: str) -> None:
    async with database.transaction() as connection:
        for name in ("judge", "generator"):
            identity = ModelIdentity(
                name=f"a-{name}", backend="scripted", digest=name, device=device_of.get(name, "cpu:0"),
                needs_lease=True, footprint_mib=96, options={"parallel": 2, "num_ctx": 512},
            )  # fmt: skip
            await pins.register(connection, identity)


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, ITEMS)
    await register(database)
    async with serving(database, redis_url, settings(FIRST)) as api:
        yield api


async def planned(api: Api, job: Any) -> Any:
    return await api.get(f"/v1/jobs/{job['id']}/plan")


def left(found: Any) -> dict[str, int]:
    residencies = found["chosen"]["residencies"] if found["chosen"] else []
    return {model["name"]: model["calls"] for residency in residencies for model in residency["models"]}


async def step(database: Database, *roles: str, judge: Reply | None = None) -> bool:
    await onward(database)
    claims = {role: await scene.claim(database, 3, role=role) for role in roles or ROLES}
    for role, claim in claims.items():
        if claim is not None:
            await scene.answer(database, claim, judge if role == "judge" else None)
    await onward(database)
    return any(claims.values())


async def onward(database: Database) -> None:
    await scene.advance(database)
    await lifecycle.finish_due_jobs(database)
    await scene.advance(database)


async def made(database: Database) -> dict[str, int]:
    found = await scene.rows(
        database,
        "SELECT m.name, count(*) FROM attempts a JOIN calls c ON c.id = a.call_id JOIN models m ON m.id = c.model_id"
        " WHERE m.needs_lease GROUP BY m.name",
    )
    return {str(name): int(str(count)) for name, count in found}


async def test_a_job_that_was_just_submitted_is_planned_as_before(api: Api, database: Database) -> None:
    """Calibration and samples count once each, whether rows of them are there or not; what samples share is counted
    before a submission alone.
    """
    body = {"name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", "params": GATE}
    before = (await api.http.post("/v1/plan", json={"job": body})).json()
    job = await api.job("mathrag-gate", params=GATE)
    assert await planned(api, job) == {**before, "calls": None, "shared_s": None}
    await scene.advance(database)
    assert left(await planned(api, job)) == left(before)


@pytest.mark.parametrize("judge", [None, MUTE], ids=["by judge", "by rules"])
async def test_at_every_moment_a_plan_is_an_upper_end_of_what_is_still_done(
    api: Api, database: Database, judge: Reply | None
) -> None:
    job = await api.job("mathrag-gate", params=GATE)
    seen = [(left(await planned(api, job)), {})]
    while await step(database, judge=judge):
        seen.append((left(await planned(api, job)), await made(database)))
    finally_made = await made(database)
    assert finally_made["a-generator"] == ITEMS
    for calls, so_far in seen:
        for name, count in finally_made.items():
            assert calls.get(name, 0) >= count - so_far.get(name, 0)
    for (before, _), (after, _) in pairwise(seen):
        assert all(count <= before[name] for name, count in after.items())
    assert seen[-1][0] == {}


async def test_a_gate_that_chose_rules_needs_its_judge_no_more(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params=GATE)
    assert (await planned(api, job))["chosen"]["name"] == "staged"
    while (await scene.job_states(database)) == ["preparing"]:
        assert await step(database, judge=MUTE)
    found = await planned(api, job)
    assert (found["chosen"]["name"], left(found)) == ("alone", {"a-generator": ITEMS})


async def test_when_everything_is_judged_the_generator_is_all_that_is_left(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params=GATE)
    while await step(database, "dense", "sparse", "judge"):
        pass
    assert await step(database, "generate")
    found = await planned(api, job)
    assert left(found) == {"a-generator": ITEMS - 3}
    assert found["why"].startswith("alone: loads 1, flips 0")


async def test_a_call_that_two_jobs_wait_for_is_planned_for_each(api: Api, database: Database) -> None:
    first, second = [await api.job("closed-book", name=name) for name in ("one", "two")]
    await scene.advance(database)
    assert [left(await planned(api, job)) for job in (first, second)] == [{"a-generator": ITEMS}] * 2
    claim = await scene.claim(database, 2)
    assert claim is not None
    await scene.answer(database, claim)
    assert [left(await planned(api, job)) for job in (first, second)] == [{"a-generator": ITEMS - 2}] * 2
    assert (await api.http.post(f"/v1/jobs/{first['id']}/cancel")).status_code < 300
    await scene.advance(database)
    assert (await planned(api, first))["why"] == "no model is wanted"
    assert left(await planned(api, second)) == {"a-generator": ITEMS - 2}


async def test_a_sample_that_failed_wants_nothing_more(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params=GATE)
    while (await scene.job_states(database)) == ["preparing"]:
        assert await step(database, judge=MUTE)
    await scene.run_sql(database, "UPDATE samples SET state = 3 WHERE id = (SELECT max(id) FROM samples)")
    assert left(await planned(api, job)) == {"a-generator": ITEMS - 1}


async def test_two_devices_need_no_flip_and_each_is_held_to_its_own_budget(database: Database, redis_url: str) -> None:
    await scene.furnish(database, ITEMS)
    await register(database, generator="cpu:1")
    async with serving(database, redis_url, settings(FIRST, SECOND)) as api:
        job = await api.job("mathrag-gate", params=GATE)
        found = await planned(api, job)
        assert found["chosen"]["name"] == "on several devices: a-judge on cpu:0; a-generator on cpu:1"
        assert (found["chosen"]["loads"], found["chosen"]["flips"]) == (2, 0)
        budgets = {each["device"]: each["budget_mib"] for each in found["chosen"]["residencies"]}
        assert budgets == {"cpu:0": 160, "cpu:1": 100}
        assert found["resident"] == {"cpu:0": [], "cpu:1": []}
    small = SECOND.model_copy(update={"budget_mib": 95})
    async with serving(database, redis_url, settings(FIRST, small)) as api:
        found = await planned(api, job)
        assert found["chosen"] is None
        assert found["why"].startswith("a-generator fits nowhere: alone, with one slot of 1024 tokens, it needs 96 MiB")
        assert found["why"].endswith("of 95; a smaller quantisation, or a `device.budget_mib` of 96")
        (other,) = found["others"]
        assert other["refused"] == "96 MiB (a-generator 96 with slots: 2) of 95 on cpu:1"


async def test_a_model_whose_device_is_not_configured_any_more_cannot_be_planned(
    database: Database, redis_url: str
) -> None:
    await scene.furnish(database, ITEMS)
    await register(database, generator="cpu:1")
    async with serving(database, redis_url, settings(FIRST)) as api:
        job = await api.job("closed-book")
        reply = await api.http.get(f"/v1/jobs/{job['id']}/plan")
        assert (reply.status_code, "pinned to an unknown device" in reply.json()["detail"]) == (422, True)


async def test_a_model_that_is_not_configured_any_more_is_planned_by_its_row(
    database: Database, redis_url: str
) -> None:
    await scene.furnish(database, ITEMS)
    await register(database)
    others = settings(FIRST, other=Model(driver="scripted"))
    async with serving(database, redis_url, others) as api:
        job = await api.job("closed-book")
        ((model,),) = [each["models"] for each in (await planned(api, job))["chosen"]["residencies"]]
        assert (model["parallel"], model["context"]) == (2, 512)


async def test_what_was_measured_takes_the_place_of_what_was_assumed(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    assert (await planned(api, job))["chosen"]["basis"] == "assumed"
    await scene.run_sql(
        database,
        "INSERT INTO residencies (epoch, device, previous_epoch, models, servers, cause, state, wanted_at, opened_at,"
        " closed_at) SELECT 1, 'cpu:0', 0, ARRAY[id], jsonb_build_array(jsonb_build_object('model', id, 'seconds',"
        " 2.5)), 'first', 'closed', now(), now(), now() FROM models WHERE id = :model",
        model=await scene.model(database, "a-generator"),
    )
    found = (await planned(api, job))["chosen"]
    ((model,),) = [each["models"] for each in found["residencies"]]
    assert model["load_s"] == {"value": 2.5, "basis": "measured", "source": "its last loads here"}
    assert (model["call_s"]["basis"], found["basis"]) == ("assumed", "mixed")
