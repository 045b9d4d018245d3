"""What jobs cost and what they will take: prices, plans of running jobs, and plans over HTTP."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from shared.lease import residencies
from shared.replies import Failure, FailureKind, Reply
from shared.runtime import lifecycle, pins
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings, TokenPrice
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio


# What a job costs, of the rows of its calls and the prices that are configured when its report is asked for.


JUDGE = TokenPrice(prompt=2.0, completion=10.0)
GENERATOR = TokenPrice(prompt=0.5, completion=4.0)
JUDGED = {"quality": "judge"}
COUNTED = "UPDATE attempts SET prompt_tokens = 1000, completion_tokens = 100"
"""Made-up tokens of every call."""

CACHED = """
    UPDATE attempts SET prompt_tokens = 1000, cached_tokens = CASE c.role WHEN 'judge' THEN 400 END
    FROM calls c WHERE c.id = attempts.call_id"""
"""Made-up tokens, of which only the judge's server reports how many it had in its cache."""


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


async def test_a_report_counts_the_prompt_tokens_that_each_models_server_computed(
    database: Database, redis_url: str, plant: Plant
) -> None:
    first, second = await reports(database, redis_url, plant, {}, CACHED)
    judge, generate = first["calls_made"]["judge"], first["calls_made"]["generate"]
    assert first["prompt_tokens"] == {
        "a-generator": {"sent": 1000 * generate, "computed": None},
        "a-judge": {"sent": 1000 * judge, "computed": 600 * judge},
    }
    assert second["prompt_tokens"] == {}


@pytest.mark.parametrize(
    ("counted", "sent", "computed"),
    [
        ("UPDATE attempts SET prompt_tokens = NULL, cached_tokens = NULL", None, None),
        ("UPDATE attempts SET prompt_tokens = 10, cached_tokens = 0", 10, 10),
        ("UPDATE attempts SET prompt_tokens = 10, cached_tokens = NULLIF(id % 2, 1)", 10, None),
    ],
)
async def test_tokens_that_a_server_does_not_report_for_every_call_are_unknown_and_not_zero(
    database: Database, redis_url: str, plant: Plant, counted: str, sent: int | None, computed: int | None
) -> None:
    first, _ = await reports(database, redis_url, plant, {}, counted)
    judge = first["calls_made"]["judge"]
    expected = {"sent": sent and sent * judge, "computed": computed and computed * judge}
    assert first["prompt_tokens"]["a-judge"] == expected


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


async def test_a_job_that_no_model_has_answered_has_no_cost(database: Database, empty_api: Api) -> None:
    await scene.furnish(database)
    await empty_api.job(name="one")
    assert (await empty_api.get("/v1/jobs/one/report"))["cost"] is None


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
    body = {
        "name": "a-job",
        "dataset": "items",
        "corpus": "docs",
        "pipeline": "mathrag-gate",
        "params": {**scene.QUALITY_ALONE, **GATE},
    }
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


# Plans over HTTP: of a job's remaining calls, of a job that is not submitted, and of models that nobody has.

SETTINGS = scene.SETTINGS.model_copy(
    update={
        "device": Device(budget_mib=160),
        "models": {name: Model(driver="scripted", parallel=4) for name in ("a-judge", "a-generator")},
    }
)
WHAT_IF: dict[str, Any] = {
    "models": [
        {"role": "judge", "preset": "qwen2.5-0.5b", "quantisation": "f16", "calls": 5000},
        {"role": "generate", "preset": "qwen2.5-7b", "calls": 500},
    ]
}


@pytest.fixture
async def planning_api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, ITEMS)
    async with database.transaction() as connection:
        for name in ("a-judge", "a-generator"):
            identity = ModelIdentity(
                name=name, backend="scripted", digest=name, device="cpu:0", needs_lease=True, footprint_mib=96
            )
            await pins.register(connection, identity)
    async with serving(database, redis_url, SETTINGS) as planning_api:
        yield planning_api


async def held(database: Database, *names: str) -> None:
    found = await rows(database, "SELECT id FROM models WHERE name = ANY(:names)", names=list(names))
    async with database.transaction() as connection:
        epoch = await residencies.insert_wanted(connection, "cpu:0", 0, [int(str(each)) for (each,) in found], "test")
        assert epoch is not None
        await residencies.set_state(connection, epoch, "open", datetime.now(UTC))


async def asked(planning_api: Api, body: dict[str, Any], status: int = 200) -> Any:
    reply = await planning_api.http.post("/v1/plan", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def chosen_residencies(found: Any) -> list[tuple[list[str], int, bool]]:
    return [
        ([model["name"] for model in residency["models"]], residency["predicted_mib"], residency["resident"])
        for residency in found["chosen"]["residencies"]
    ]


async def test_a_job_is_staged_where_both_models_do_not_fit(planning_api: Api) -> None:
    job = await planning_api.job("mathrag-gate", params={"gate": {"items": 2}})
    found = await planning_api.get(f"/v1/jobs/{job['id']}/plan")
    assert chosen_residencies(found) == [(["a-judge"], 96, False), (["a-generator"], 96, False)]
    assert (found["chosen"]["name"], found["chosen"]["loads"], found["chosen"]["flips"]) == ("staged", 2, 1)
    refused = {other["name"]: other["refused"] for other in found["others"]}
    assert refused["together"] == ("192 MiB (a-judge 96 with slots: 4, a-generator 96 with slots: 4) of 160 on cpu:0")
    assert found["resident"] == {"cpu:0": []}


async def test_the_calls_of_a_job_are_an_upper_end(planning_api: Api) -> None:
    job = await planning_api.job("closed-book", repeats=3)
    found = await planning_api.get(f"/v1/jobs/{job['id']}/plan")
    ((model,),) = ([residency["models"] for residency in found["chosen"]["residencies"]],)
    assert [(each["name"], each["calls"]) for each in model] == [("a-generator", 3 * ITEMS)]


async def test_what_is_resident_is_not_loaded_again(planning_api: Api, database: Database) -> None:
    await held(database, "a-generator")
    job = await planning_api.job("closed-book")
    found = await planning_api.get(f"/v1/jobs/{job['id']}/plan")
    assert chosen_residencies(found) == [(["a-generator"], 96, True)]
    assert (found["chosen"]["loads"], found["chosen"]["flips"]) == (0, 0)
    assert found["resident"] == {"cpu:0": ["a-generator"]}


async def test_a_live_job_is_planned_by_what_is_left_of_it(planning_api: Api, database: Database) -> None:
    job = await planning_api.job("closed-book")
    await scene.advance(database)
    claimed = await scene.claim(database, 2)
    assert claimed is not None
    await scene.answer(database, claimed)
    before = await planning_api.get(f"/v1/jobs/{job['id']}/plan")
    assert before["chosen"]["residencies"][0]["models"][0]["calls"] == ITEMS - 2
    await scene.drain(database, scene.ScriptedExecutor())
    after = await planning_api.get(f"/v1/jobs/{job['id']}/plan")
    assert (after["chosen"], after["why"]) == (None, "no model is wanted")


async def test_a_job_that_is_not_submitted_is_planned_and_not_kept(planning_api: Api, database: Database) -> None:
    body = {"name": "j", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
    found = await asked(planning_api, {"job": body, "devices": [{"id": "cpu:9", "budget_mib": 400}]})
    assert chosen_residencies(found) == [(["a-judge", "a-generator"], 192, False)]
    assert found["chosen"]["name"] == "together"
    assert await rows(database, "SELECT count(*) FROM jobs") == [(0,)]


async def test_models_by_preset_are_planned_for_a_card_that_is_not_there(planning_api: Api) -> None:
    names = []
    for mib in (12_288, 7_000, 4_096):
        found = await asked(planning_api, {**WHAT_IF, "devices": [{"budget_mib": mib}]})
        names.append(found["chosen"] and found["chosen"]["name"])
    assert names == ["together", "staged", None]
    assert "qwen2.5-7b q4_k_m fits nowhere" in found["why"]
    assert "smaller quantisation" in found["why"]


async def test_two_cards_hold_a_model_each(planning_api: Api) -> None:
    cards = [{"id": "gpu:0", "budget_mib": 7000}, {"id": "gpu:1", "budget_mib": 7000}]
    found = await asked(planning_api, {**WHAT_IF, "devices": cards})
    assert {residency["device"] for residency in found["chosen"]["residencies"]} == {"gpu:0", "gpu:1"}
    assert found["chosen"]["flips"] == 0


async def test_every_time_says_how_it_is_known(planning_api: Api) -> None:
    slow, fast = [
        await asked(planning_api, {**WHAT_IF, "devices": [{"budget_mib": 12_288}], "speeds": {"disk_mib_s": speed}})
        for speed in (100, 1000)
    ]
    time = slow["chosen"]["residencies"][0]["models"][1]["load_s"]
    assert (time["basis"], time["source"]) == (
        "assumed", "4466 MiB of weights at 100 MiB/s, and 0.4 s to verify",
    )  # fmt: skip
    assert slow["chosen"]["seconds"] > fast["chosen"]["seconds"]


async def test_a_quantised_cache_and_a_place_for_retrieval_are_part_of_the_question(planning_api: Api) -> None:
    searches = {"mib": 2355, "calls": 500, "gpu_s": 0.005, "cpu_s": 0.05}
    found = await asked(planning_api, {**WHAT_IF, "devices": [{"budget_mib": 12_288}], "retrieval": searches})
    assert found["chosen"]["name"] == "together, retrieval on the GPU"
    assert found["chosen"]["residencies"][0]["retrieval_mib"] == 2355
    half = [{**each, "kv": "q8_0"} for each in WHAT_IF["models"]]
    smaller = await asked(planning_api, {"models": half, "devices": [{"budget_mib": 12_288}]})
    assert (
        smaller["chosen"]["residencies"][0]["predicted_mib"] < found["chosen"]["residencies"][0]["predicted_mib"] - 2355
    )


async def test_a_question_that_makes_no_sense_is_refused(planning_api: Api, subtests: pytest.Subtests) -> None:
    for body, said in (
        ({}, "neither `job` nor `models`"),
        ({"models": [{"role": "judge"}]}, "`preset` or a `shape`"),
        ({"models": [{"role": "judge", "preset": "gpt-2"}]}, "unknown preset 'gpt-2'"),
        ({"models": [{"role": "judge", "preset": "qwen2.5-7b", "quantisation": "q9"}]}, "is not available as 'q9'"),
        ({**WHAT_IF, "devices": [{"budget_mib": 9}, {"budget_mib": 9}]}, "two have the same `id`"),
        (
            {**WHAT_IF, "devices": [{"budget_mib": 9}, {"id": "cpu:0", "budget_mib": 9}]},
            "a CPU and a GPU cannot be planned together",
        ),
        ({"models": [{**WHAT_IF["models"][0], "device": "gpu:7"}], "devices": [{"budget_mib": 9}]}, "pinned"),
        ({**WHAT_IF, "devices": [{"budget_mib": 0}]}, "budget_mib"),
        ({"job": {"name": "j", "dataset": "items", "pipeline": "no-such"}}, "`pipeline`"),
    ):
        with subtests.test(said=said):
            assert said in (await asked(planning_api, body, 422))["detail"]


async def test_what_is_not_there_is_not_found(planning_api: Api) -> None:
    assert (await planning_api.http.get("/v1/jobs/nobody/plan")).status_code == 404
    await asked(planning_api, {"job": {"name": "j", "dataset": "nothing", "pipeline": "closed-book"}}, 404)


async def test_so_many_questions_are_planned_without_a_dataset(planning_api: Api) -> None:
    body = {"corpus": "docs", "pipeline": "mathrag-gate", "repeats": 2}
    uploaded = await asked(planning_api, {"job": {**body, "dataset": "items"}})
    assert await asked(planning_api, {"job": body, "questions": ITEMS}) == uploaded
    for wrong in ({"job": body}, {"job": {**body, "dataset": "items"}, "questions": 3}):
        refused = await asked(planning_api, wrong, 422)
        assert "exactly one of `job.dataset` and `questions`" in refused["detail"]


async def test_calls_are_told_by_role_and_equal_ones_count_once_in_the_shorter_time(planning_api: Api) -> None:
    found = await asked(planning_api, {"job": {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}})
    # Ten candidates of each item are rated for relevance, and each document once for its quality.
    assert (found["calls"]["generate"], found["calls"]["judge"]) == (ITEMS, 10 * ITEMS + len(scene.DOCUMENTS))
    alone = {model["name"]: model["calls"] for each in found["chosen"]["residencies"] for model in each["models"]}
    assert alone["a-judge"] > 10 * ITEMS + len(scene.DOCUMENTS)
    assert found["shared_s"] < found["chosen"]["seconds"]
    assert (await asked(planning_api, WHAT_IF))["calls"] is None


async def test_models_that_are_not_there_take_the_place_of_a_jobs(planning_api: Api) -> None:
    job = {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
    own = await asked(planning_api, {"job": job})
    both = await asked(planning_api, {"job": job, **WHAT_IF, "devices": [{"budget_mib": 12_288}]})
    assert chosen_residencies(both)[0][0] == ["qwen2.5-0.5b f16", "qwen2.5-7b q4_k_m"]
    calls = [[m["calls"] for r in plan["chosen"]["residencies"] for m in r["models"]] for plan in (own, both)]
    assert calls[0] == calls[1]
    one = [{"role": role, "preset": "qwen2.5-0.5b"} for role in ("judge", "generate")]
    alone = await asked(planning_api, {"job": job, "models": one, "devices": [{"budget_mib": 12_288}]})
    ((model,),) = [each["models"] for each in alone["chosen"]["residencies"]]
    assert model["calls"] == sum(calls[0])
