"""One accuracy everywhere: an item counts once, however often it was answered, and a figure lies in its interval."""

import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from shared.storage.database import Database
from shared.storage.jobs import count_extractions
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

ITEMS = 40
RIGHT = 10
REPEATS = 5
UNEQUAL = [
    *({"index": n, "repeat": repeat, "answer": str(2 * n)} for n in range(RIGHT) for repeat in range(REPEATS)),
    *({"index": n, "answer": "-1"} for n in range(RIGHT, ITEMS)),
]
"""Ten items are right in all of five repeats, thirty were answered once and wrong."""


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, ITEMS)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def imported(api: Api, database: Database, **jobs: Iterable[Any]) -> None:
    for name, lines in jobs.items():
        reply = await api.upload("jobs/import", name, lines, dataset="items")
        assert reply.status_code == 202, reply.text
    await finished(database)


async def page(api: Api, path: str) -> str:
    shown = (await api.http.get(path, headers={"accept": "text/html"})).text
    return " ".join(re.sub(r"<[^>]+>", " ", shown).split())


async def test_an_item_counts_once_in_every_answer_of_the_api(api: Api, database: Database) -> None:
    once = [{"index": n, "answer": str(2 * n) if n < RIGHT else "-1"} for n in range(ITEMS)]
    await imported(api, database, theirs=UNEQUAL, once=once)
    report = await api.get("/v1/jobs/theirs/report")
    accuracy = report["accuracy"]
    assert {name: accuracy[name] for name in ("value", "items", "correct", "graded")} == {
        "value": RIGHT / ITEMS, "items": ITEMS, "correct": 50, "graded": 80,
    }  # fmt: skip
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert (report["bootstrap"]["value"], report["items"]) == (RIGHT / ITEMS, ITEMS)
    assert (await api.get("/v1/jobs/theirs"))["accuracy"] == accuracy
    listed = {job["name"]: job["accuracy"] for job in (await api.get("/v1/jobs"))["data"]}
    assert listed["theirs"] == accuracy
    same = {name: accuracy[name] for name in ("value", "low", "high")}
    assert same == {name: listed["once"][name] for name in same}, "one answer an item is the same figure"
    found = await api.get("/v1/comparison", job="theirs", baseline="once")
    theirs = next(each for each in found["jobs"] if each["name"] == "theirs")
    assert {name: theirs[name] for name in ("accuracy", "bootstrap", "repeats", "items")} == {
        name: report[name] for name in ("accuracy", "bootstrap", "repeats", "items")
    }
    assert theirs["measured"] == {**same, "n": ITEMS}
    assert found["pairs"][0]["difference"]["value"] == 0.0


async def test_repeats_are_compared_over_the_items_that_all_of_them_answered(api: Api, database: Database) -> None:
    await imported(api, database, theirs=UNEQUAL)
    repeats = (await api.get("/v1/jobs/theirs/report"))["repeats"]
    assert repeats == {"accuracies": [1.0] * REPEATS, "items": RIGHT, "mean": 1.0, "std": 0.0}


async def test_the_pages_say_how_many_items_and_answers_there_are(api: Api, database: Database) -> None:
    await imported(api, database, theirs=UNEQUAL)
    said = "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers"
    job = await page(api, "/jobs/theirs")
    assert f"Completed: {said}" in job
    assert "An item counts once, by the share of its answers that are right; of all answers 50 of 80 are." in job
    assert said in await page(api, "/jobs/theirs/report")
    assert "25.0 % (14.2 to 40.2)" in await page(api, "/jobs")


async def test_a_failed_sample_as_a_wrong_one_is_a_mean_over_items_too(api: Api, database: Database) -> None:
    await imported(api, database, theirs=UNEQUAL)
    await scene.run_sql(
        database,
        "UPDATE samples SET state = 3, failure = 'timeout' WHERE kind = 'item' AND ordinal < 3 AND repeat = 0",
    )
    await scene.run_sql(
        database, "DELETE FROM outcomes o USING samples s WHERE s.id = o.sample_id AND s.failure = 'timeout'"
    )
    report = await api.get("/v1/jobs/theirs/report")
    assert (report["accuracy"]["value"], report["accuracy"]["graded"]) == (RIGHT / ITEMS, 77)
    (note,) = [each for each in report["notes"] if "counted as wrong" in each]
    assert note.startswith("3 failed samples are left out of the accuracy; counted as wrong they would make it 23.5 %")
    assert note.endswith("mean of 40 items, 80 answers")


async def test_a_dataset_that_lists_an_item_twice_has_one_accuracy(api: Api, database: Database) -> None:
    lines = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in (1, 1, 2, 3)]
    assert (await api.upload("datasets", "twice", lines)).status_code == 201
    for name, right in (("left", (0,)), ("right", ())):
        answers = [{"index": n, "answer": str(2 * (1, 1, 2, 3)[n]) if n in right else "-1"} for n in range(4)]
        assert (await api.upload("jobs/import", name, answers, dataset="twice")).status_code == 202
    await finished(database)
    report = await api.get("/v1/jobs/left/report")
    assert (report["accuracy"]["value"], report["accuracy"]["items"]) == (0.25, 4)
    assert (await api.get("/v1/jobs/left"))["accuracy"] == report["accuracy"]
    found = await api.get("/v1/comparison", job="left", baseline="right")
    left = next(each for each in found["jobs"] if each["name"] == "left")
    assert (left["accuracy"], left["bootstrap"]) == (report["accuracy"], report["bootstrap"])
    (pair,) = found["pairs"]
    assert (pair["items"], pair["left_only"], pair["right_only"]) == (3, 0, 0)
    assert pair["difference"]["value"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(("missing", "how_much"), [(ITEMS, "nothing"), (ITEMS // 2 + 1, "little"), (ITEMS // 2, "")])
async def test_a_job_of_answers_that_could_not_be_read_says_so_in_its_headlines(
    api: Api, database: Database, missing: int, how_much: str
) -> None:
    texts = [{"index": n, "text": "It is four." if n < missing else "$\\boxed{-1}$"} for n in range(ITEMS)]
    await imported(api, database, theirs=texts)
    said = (
        f"In {missing} of {ITEMS} answers no final answer could be found, so 0.0 % says {how_much} about the system."
        " Choose another grader; an import can also give the final answers themselves, as `answer`."
    )
    plain = "0.0 % right (0.0 to 8.8), 0 of 40"
    for path in ("/jobs/theirs", "/jobs/theirs/report"):
        shown = await page(api, path)
        assert (said in shown, plain in shown) == (bool(how_much), not how_much)


async def test_answers_are_counted_by_how_the_final_answer_was_found(api: Api, database: Database) -> None:
    texts = ["$\\boxed{0}$", "It is four.", "$\\boxed{4$", "I know nothing of it."]
    await imported(api, database, one=[{"index": n, "text": each} for n, each in enumerate(texts)], two=UNEQUAL[:1])
    async with database.transaction() as connection:
        assert await count_extractions(connection, [1, 2, 3]) == {
            1: {"missing": 2, "ok": 1, "unbalanced": 1}, 2: {"ok": 1},
        }  # fmt: skip
