"""Plans over HTTP: of a job's remaining calls, of a job that is not submitted, and of models that nobody has."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.lease import residencies
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio

ITEMS = 6
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
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, ITEMS)
    async with database.transaction() as connection:
        for name in ("a-judge", "a-generator"):
            identity = ModelIdentity(
                name=name, backend="scripted", digest=name, device="cpu:0", needs_lease=True, footprint_mib=96
            )
            await pins.register(connection, identity)
    async with serving(database, redis_url, SETTINGS) as api:
        yield api


async def held(database: Database, *names: str) -> None:
    found = await rows(database, "SELECT id FROM models WHERE name = ANY(:names)", names=list(names))
    async with database.transaction() as connection:
        epoch = await residencies.insert_wanted(connection, "cpu:0", 0, [int(str(each)) for (each,) in found], "test")
        assert epoch is not None
        await residencies.set_state(connection, epoch, "open", datetime.now(UTC))


async def asked(api: Api, body: dict[str, Any], status: int = 200) -> Any:
    reply = await api.http.post("/v1/plan", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def planned(found: Any) -> list[tuple[list[str], int, bool]]:
    return [
        ([model["name"] for model in residency["models"]], residency["predicted_mib"], residency["resident"])
        for residency in found["chosen"]["residencies"]
    ]


async def test_a_job_is_staged_where_both_models_do_not_fit(api: Api) -> None:
    job = await api.job("mathrag-gate", params={"gate": {"items": 2}})
    found = await api.get(f"/v1/jobs/{job['id']}/plan")
    assert planned(found) == [(["a-judge"], 96, False), (["a-generator"], 96, False)]
    assert (found["chosen"]["name"], found["chosen"]["loads"], found["chosen"]["flips"]) == ("staged", 2, 1)
    refused = {other["name"]: other["refused"] for other in found["others"]}
    assert refused["together"] == ("192 MiB (a-judge 96 with slots: 4, a-generator 96 with slots: 4) of 160 on cpu:0")
    assert found["resident"] == {"cpu:0": []}


async def test_the_calls_of_a_job_are_an_upper_end(api: Api) -> None:
    job = await api.job("closed-book", repeats=3)
    found = await api.get(f"/v1/jobs/{job['id']}/plan")
    ((model,),) = ([residency["models"] for residency in found["chosen"]["residencies"]],)
    assert [(each["name"], each["calls"]) for each in model] == [("a-generator", 3 * ITEMS)]


async def test_what_is_resident_is_not_loaded_again(api: Api, database: Database) -> None:
    await held(database, "a-generator")
    job = await api.job("closed-book")
    found = await api.get(f"/v1/jobs/{job['id']}/plan")
    assert planned(found) == [(["a-generator"], 96, True)]
    assert (found["chosen"]["loads"], found["chosen"]["flips"]) == (0, 0)
    assert found["resident"] == {"cpu:0": ["a-generator"]}


async def test_a_live_job_is_planned_by_what_is_left_of_it(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    await scene.advance(database)
    claimed = await scene.claim(database, 2)
    assert claimed is not None
    await scene.answer(database, claimed)
    before = await api.get(f"/v1/jobs/{job['id']}/plan")
    assert before["chosen"]["residencies"][0]["models"][0]["calls"] == ITEMS - 2
    await scene.drain(database, scene.ScriptedExecutor())
    after = await api.get(f"/v1/jobs/{job['id']}/plan")
    assert (after["chosen"], after["why"]) == (None, "no model is wanted")


async def test_a_job_that_is_not_submitted_is_planned_and_not_kept(api: Api, database: Database) -> None:
    body = {"name": "j", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
    found = await asked(api, {"job": body, "devices": [{"id": "cpu:9", "budget_mib": 400}]})
    assert planned(found) == [(["a-judge", "a-generator"], 192, False)]
    assert found["chosen"]["name"] == "together"
    assert await rows(database, "SELECT count(*) FROM jobs") == [(0,)]


async def test_models_by_preset_are_planned_for_a_card_that_is_not_there(api: Api) -> None:
    names = []
    for mib in (12_288, 7_000, 4_096):
        found = await asked(api, {**WHAT_IF, "devices": [{"budget_mib": mib}]})
        names.append(found["chosen"] and found["chosen"]["name"])
    assert names == ["together", "staged", None]
    assert "qwen2.5-7b q4_k_m fits nowhere" in found["why"]
    assert "smaller quantisation" in found["why"]


async def test_two_cards_hold_a_model_each(api: Api) -> None:
    cards = [{"id": "gpu:0", "budget_mib": 7000}, {"id": "gpu:1", "budget_mib": 7000}]
    found = await asked(api, {**WHAT_IF, "devices": cards})
    assert {residency["device"] for residency in found["chosen"]["residencies"]} == {"gpu:0", "gpu:1"}
    assert found["chosen"]["flips"] == 0


async def test_every_time_says_how_it_is_known(api: Api) -> None:
    slow, fast = [
        await asked(api, {**WHAT_IF, "devices": [{"budget_mib": 12_288}], "speeds": {"disk_mib_s": speed}})
        for speed in (100, 1000)
    ]
    time = slow["chosen"]["residencies"][0]["models"][1]["load_s"]
    assert (time["basis"], time["source"]) == (
        "assumed", "4466 MiB of weights at 100 MiB/s, and 0.4 s to verify",
    )  # fmt: skip
    assert slow["chosen"]["seconds"] > fast["chosen"]["seconds"]


async def test_a_quantised_cache_and_a_place_for_retrieval_are_part_of_the_question(api: Api) -> None:
    searches = {"mib": 2355, "calls": 500, "gpu_s": 0.005, "cpu_s": 0.05}
    found = await asked(api, {**WHAT_IF, "devices": [{"budget_mib": 12_288}], "retrieval": searches})
    assert found["chosen"]["name"] == "together, retrieval on the GPU"
    assert found["chosen"]["residencies"][0]["retrieval_mib"] == 2355
    half = [{**each, "kv": "q8_0"} for each in WHAT_IF["models"]]
    smaller = await asked(api, {"models": half, "devices": [{"budget_mib": 12_288}]})
    assert (
        smaller["chosen"]["residencies"][0]["predicted_mib"] < found["chosen"]["residencies"][0]["predicted_mib"] - 2355
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "neither `job` nor `models`"),
        ({"models": [{"role": "judge"}]}, "`preset` or a `shape`"),
        ({"models": [{"role": "judge", "preset": "gpt-2"}]}, "there is no preset 'gpt-2'"),
        ({"models": [{"role": "judge", "preset": "qwen2.5-7b", "quantisation": "q9"}]}, "has no 'q9'"),
        ({**WHAT_IF, "devices": [{"budget_mib": 9}, {"budget_mib": 9}]}, "two have the same `id`"),
        (
            {**WHAT_IF, "devices": [{"budget_mib": 9}, {"id": "cpu:0", "budget_mib": 9}]},
            "a CPU and a GPU cannot be planned together",
        ),
        ({"models": [{**WHAT_IF["models"][0], "device": "gpu:7"}], "devices": [{"budget_mib": 9}]}, "pinned"),
        ({**WHAT_IF, "devices": [{"budget_mib": 0}]}, "budget_mib"),
        ({"job": {"name": "j", "dataset": "items", "pipeline": "no-such"}}, "`pipeline`"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(api: Api, body: dict[str, Any], said: str) -> None:
    assert said in (await asked(api, body, 422))["detail"]


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    assert (await api.http.get("/v1/jobs/nobody/plan")).status_code == 404
    await asked(api, {"job": {"name": "j", "dataset": "nothing", "pipeline": "closed-book"}}, 404)


async def test_so_many_questions_are_planned_without_a_dataset(api: Api) -> None:
    body = {"corpus": "docs", "pipeline": "mathrag-gate", "repeats": 2}
    uploaded = await asked(api, {"job": {**body, "dataset": "items"}})
    assert await asked(api, {"job": body, "questions": ITEMS}) == uploaded
    for wrong in ({"job": body}, {"job": {**body, "dataset": "items"}, "questions": 3}):
        refused = await asked(api, wrong, 422)
        assert "either `job.dataset` or `questions`, and not both" in refused["detail"]


async def test_calls_are_told_by_role_and_equal_ones_count_once_in_the_shorter_time(api: Api) -> None:
    found = await asked(api, {"job": {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}})
    assert (found["calls"]["generate"], found["calls"]["judge"]) == (ITEMS, len(scene.DOCUMENTS))
    alone = {model["name"]: model["calls"] for each in found["chosen"]["residencies"] for model in each["models"]}
    assert alone["a-judge"] > len(scene.DOCUMENTS)
    assert found["shared_s"] < found["chosen"]["seconds"]
    assert (await asked(api, WHAT_IF))["calls"] is None


async def test_models_that_are_not_there_take_the_place_of_a_jobs(api: Api) -> None:
    job = {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
    own = await asked(api, {"job": job})
    both = await asked(api, {"job": job, **WHAT_IF, "devices": [{"budget_mib": 12_288}]})
    assert planned(both)[0][0] == ["qwen2.5-0.5b f16", "qwen2.5-7b q4_k_m"]
    calls = [[m["calls"] for r in plan["chosen"]["residencies"] for m in r["models"]] for plan in (own, both)]
    assert calls[0] == calls[1]
    one = [{"role": role, "preset": "qwen2.5-0.5b"} for role in ("judge", "generate")]
    alone = await asked(api, {"job": job, "models": one, "devices": [{"budget_mib": 12_288}]})
    ((model,),) = [each["models"] for each in alone["chosen"]["residencies"]]
    assert model["calls"] == sum(calls[0])
