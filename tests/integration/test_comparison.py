"""Jobs side by side on a real database: items are matched by content, and repeats are one observation."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from services.orchestrator.reports.comparison import System, compare
from shared.errors import Invalid
from shared.storage import jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant

pytestmark = pytest.mark.anyio
ITEMS = 40
Answered = Callable[..., Awaitable[None]]


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, ITEMS)
    return empty_api


async def right(plant: Plant, job: str, items: Iterable[int], *, repeat: int = 0) -> None:
    await plant(
        "UPDATE outcomes SET correct = s.ordinal = ANY(:items) FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND s.kind = 'item' AND j.name = :job AND s.repeat = :repeat",
        items=list(items), job=job, repeat=repeat,
    )  # fmt: skip


@pytest.fixture
def answered(api: Api, database: Database, plant: Plant) -> Answered:
    async def answer(**right_items: Iterable[int]) -> None:
        for name in right_items:
            await api.job(name=name)
        await finished(database)
        for name, items in right_items.items():
            await right(plant, name, items)

    return answer


async def numbers(database: Database, *names: str) -> list[int]:
    async with database.transaction() as connection:
        return [await jobs.resolve(connection, name) for name in names]


def pair(found: Any, left: str, right: str) -> Any:
    return next(each for each in found["pairs"] if (each["left"], each["right"]) == (left, right))


async def test_jobs_are_compared_with_a_baseline_and_corrected_for_their_number(api: Api, answered: Answered) -> None:
    await answered(base=range(20), better=range(1, 29), alike=range(20), one_more=range(21))
    found = await api.get("/v1/comparison", job=["better", "alike", "one_more"], baseline="base")
    assert [each["name"] for each in found["jobs"]] == ["base", "better", "alike", "one_more"]
    assert [(each["left"], each["right"]) for each in found["pairs"]][:2] == [("better", "base"), ("alike", "base")]
    better, alike, _ = found["pairs"]
    assert (better["items"], better["gained"], better["lost"]) == (ITEMS, 9, 1)
    assert better["p"] == pytest.approx(2 * (1 + 10) / 2**10)
    assert better["adjusted"] == pytest.approx(3 * better["p"])
    assert better["difference"]["value"] == pytest.approx(8 / ITEMS)
    assert better["difference"]["low"] < 8 / ITEMS < better["difference"]["high"]
    assert not better["separable"]
    assert better["words"].startswith(f"not separable at n = {ITEMS}: +20.0 points")
    assert better["needed"] > 0
    assert alike["words"] == f"not separable: no difference on any of {ITEMS} items"
    assert better["corrected"]["low"] < better["difference"]["low"]
    (note,) = found["notes"]
    assert note.startswith("p-values are corrected for 3 comparisons (Holm), and `corrected` intervals (Bonferroni)")


async def test_without_a_baseline_each_is_compared_with_each(api: Api, answered: Answered) -> None:
    await answered(one=range(30), two=range(5), three=range(30))
    found = await api.get("/v1/comparison", job=["one", "two", "three"])
    assert (len(found["pairs"]), found["baseline"]) == (3, None)
    assert pair(found, "one", "two")["words"].startswith("better: +62.5 points")
    assert pair(found, "two", "three")["words"].startswith("worse: -62.5 points")
    assert pair(found, "one", "two")["separable"]


async def test_the_figures_of_a_job_are_those_of_its_report(api: Api, answered: Answered) -> None:
    await answered(one=range(30), two=range(5))
    found = await api.get("/v1/comparison", job=["one", "two"])
    for each in found["jobs"]:
        report = await api.get(f"/v1/jobs/{each['name']}/report")
        same = ("accuracy", "bootstrap", "repeats", "endings")
        assert {name: each[name] for name in same} == {name: report[name] for name in same}
        assert each["jobs"] == [report["id"]]


async def test_repeats_of_an_item_are_one_observation(api: Api, database: Database, plant: Plant) -> None:
    params = {"generate": {"temperature": 0.8}}
    await api.job(name="sampled", repeats=3, params=params)
    await api.job(name="once")
    await finished(database)
    for repeat, count in enumerate((20, 20, 26)):
        await right(plant, "sampled", range(count), repeat=repeat)
    await right(plant, "once", range(20))
    found = await api.get("/v1/comparison", job="sampled", baseline="once")
    sampled = next(each for each in found["jobs"] if each["name"] == "sampled")
    assert sampled["repeats"]["accuracies"] == [0.5, 0.5, 0.65]
    assert sampled["repeats"]["std"] == pytest.approx(0.0866, abs=1e-4)
    assert (sampled["items"], sampled["accuracy"]["graded"]) == (ITEMS, 3 * ITEMS)
    (only,) = found["pairs"]
    assert (only["items"], only["gained"], only["lost"]) == (ITEMS, 6, 0)
    assert only["difference"]["value"] == pytest.approx(0.05)
    assert only["p"] == pytest.approx(2 / 2**6)
    assert any("repeats of one item are not independent" in note for note in found["notes"])


async def test_a_dataset_that_was_uploaded_twice_is_the_same_one(api: Api, database: Database) -> None:
    await scene.add_dataset(database, ITEMS + 10, "again", changed=frozenset(range(4)))
    await api.job(name="first")
    await api.job(name="second", dataset="again")
    await finished(database)
    found = await api.get("/v1/comparison", job=["first", "second"])
    (only,) = found["pairs"]
    assert (only["items"], only["left_only"], only["right_only"]) == (ITEMS - 4, 4, 14)
    assert any("are left out of the pair" in note for note in found["notes"])


async def test_jobs_without_a_common_item_are_refused_in_words(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 5, "others", changed=frozenset(range(5)))
    await api.job(name="first")
    await api.job(name="second", dataset="others")
    await finished(database)
    reply = await api.http.get("/v1/comparison", params={"job": ["first", "second"]})
    assert reply.status_code == 409
    assert "'first' and 'second' have no measured item in common" in reply.json()["detail"]


async def test_a_job_that_is_not_graded_yet_stands_there_without_a_verdict(api: Api, answered: Answered) -> None:
    await answered(base=range(20), better=range(20, 40))
    await api.job(name="young", params={"generate": {"max_tokens": 99}})
    found = await api.get("/v1/comparison", job=["better", "young"], baseline="base")
    young = pair(found, "young", "base")
    assert (young["items"], young["difference"]) == (0, None)
    assert young["words"].startswith("nothing to compare")
    better = pair(found, "better", "base")
    assert better["adjusted"] == better["p"]
    assert any(f"'young' is not final: {ITEMS} samples" in note for note in found["notes"])


async def test_failed_samples_are_in_no_pair(api: Api, answered: Answered, plant: Plant) -> None:
    await answered(one=range(ITEMS), two=range(ITEMS))
    await plant(
        "UPDATE outcomes SET correct = NULL FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'two' AND s.ordinal < 3",
    )
    (only,) = (await api.get("/v1/comparison", job=["one", "two"]))["pairs"]
    assert (only["items"], only["left_only"], only["difference"]["value"]) == (ITEMS - 3, 3, 0)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"job": ["one", "one"]}, 422, "at least two"),
        ({"job": "one"}, 422, "at least two"),
        ({}, 422, "job"),
        ({"job": ["one", "none"]}, 404, "no job 'none'"),
        ({"job": "one", "baseline": "none"}, 404, "no job 'none'"),
    ],
)
async def test_what_cannot_be_compared_is_refused(api: Api, query: dict[str, Any], status: int, said: str) -> None:
    await api.job(name="one")
    reply = await api.http.get("/v1/comparison", params=query)
    assert reply.status_code == status
    assert said in reply.text


async def test_jobs_of_one_name_are_told_apart_by_their_ids(api: Api, database: Database) -> None:
    ids = [(await api.job())["id"] for _ in range(2)]
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET name = 'same'")
    found = await api.get("/v1/comparison", job=ids)
    assert [each["name"] for each in found["jobs"]] == [f"same {each[:8]}" for each in ids]


async def test_several_datasets_are_pooled_item_by_item(api: Api, database: Database, plant: Plant) -> None:
    await scene.add_dataset(database, 10, "seed-2", changed=frozenset(range(10)))
    for name, dataset in (("base-1", "items"), ("gate-1", "items"), ("base-2", "seed-2"), ("gate-2", "seed-2")):
        await api.job(name=name, dataset=dataset)
    await finished(database)
    for name, items in (("base-1", range(20)), ("gate-1", range(26)), ("base-2", range(4)), ("gate-2", range(8))):
        await right(plant, name, items)
    base_1, gate_1, base_2, gate_2 = await numbers(database, "base-1", "gate-1", "base-2", "gate-2")
    base = System("base", {"items": base_1, "seed-2": base_2})
    gate = System("gate", {"items": gate_1, "seed-2": gate_2})
    found = await compare(database, [base, gate], "base")
    (only,) = found.pairs
    assert (only.items, only.gained, only.lost) == (50, 10, 0)
    assert only.p == pytest.approx(2 / 2**10)
    assert only.difference is not None
    assert only.difference.value == pytest.approx(0.2)
    assert found.jobs[1].datasets == ("items", "seed-2")
    assert (found.jobs[1].accuracy.correct, found.jobs[1].accuracy.graded) == (34, 50)


async def test_systems_are_told_apart_by_their_names(database: Database) -> None:
    with pytest.raises(Invalid, match="same name"):
        await compare(database, [System("a", {"d": 1}), System("a", {"d": 2})])
    with pytest.raises(Invalid, match="no system is called 'c'"):
        await compare(database, [System("a", {"d": 1}), System("b", {"d": 2})], "c")
