"""Datasets: what is asked, by subject and level, with gold answers or without."""

import pytest

from shared.storage import datasets
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import look, next_page, rows, text, without_time

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>\u202e"
VARIED = [
    {"question": "What is $1+1$?", "answer": "2", "subject": "Algebra", "level": "Level 2", "id": "a/1"},
    {"question": "What is $\\frac12$ of 8?", "answer": "4", "subject": "Algebra", "level": "Level 10"},
    {"question": "Why?", "subject": "Logic", "gold_documents": {"d1": 1, "d2": 2}},
]


async def test_without_a_dataset_the_page_says_how_to_make_one(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url) as api:
        assert "mathrag dataset create NAME --from PATH" in await text(api, "/datasets")


async def test_a_list_says_how_answers_are_graded(api: Api) -> None:
    await api.upload("datasets", "quiz", [{"question": "Who?", "answer": "Noether"}], grader="contains")
    found = [without_time(row) for row in rows(await text(api, "/datasets"))]
    assert found == ["quiz 1 by contains", "items 5 as mathematics"]


async def test_a_dataset_shows_what_its_items_have(api: Api) -> None:
    await api.upload("datasets", "varied", VARIED)
    page = await text(api, "/datasets/varied")
    assert "3 items; 2 of 3 have a gold answer." in page
    assert "/submit?dataset=varied" in page
    assert rows(page) == [
        "0 a/1 What is $1+1$? 2 Algebra, level 2",
        "1 What is $\\frac12$ of 8? 4 Algebra, level 10",
        "2 Why? none Logic 2 relevant documents",
    ]
    counts = (await api.get("/v1/datasets/varied"))["counts"]
    assert [(each["name"], each["items"]) for each in counts["subjects"]] == [("Algebra", 2), ("Logic", 1)]
    assert [each["name"] for each in counts["levels"]] == ["2", "10"]
    assert (counts["counted"], counts["gold"], counts["gold_documents"]) == (3, 2, 1)


async def test_a_dataset_without_gold_answers_says_that_nothing_is_graded(api: Api) -> None:
    await api.upload("datasets", "open", [{"question": "Why?"}])
    assert "nothing is graded" in await text(api, "/datasets/open")


async def test_a_large_dataset_is_counted_up_to_a_bound(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "COUNTED", 2)
    await api.upload("datasets", "varied", VARIED)
    assert (await api.get("/v1/datasets/varied"))["counts"]["counted"] == 2
    assert "the first 2 items" in await text(api, "/datasets/varied")


async def test_items_are_turned_page_by_page(api: Api) -> None:
    await api.upload("datasets", "long", [{"question": f"Question {at}?"} for at in range(23)])
    path: str | None = "/datasets/long"
    seen = []
    while path:
        page = await text(api, path)
        seen += [row.split()[0] for row in rows(page)]
        path = next_page(page)
    assert seen == [str(at) for at in range(23)]
    assert (await look(api, "/datasets/items?cursor=x")).status_code == 400


async def test_jobs_over_a_dataset_are_linked(api: Api) -> None:
    assert "mathrag job submit" in await text(api, "/datasets/items")
    for _ in range(6):
        await api.job()
    page = await text(api, "/datasets/items")
    assert [row.split()[0] for row in rows(page)[5:]] == [f"a-job-{at}" for at in (6, 5, 4, 3, 2)]
    assert '"/jobs?dataset=items">All of its jobs' in page
    assert "/corpora/docs/contamination?dataset=items" in page


async def test_an_unknown_dataset_is_told_from_what_was_meant(api: Api) -> None:
    reply = await look(api, "/datasets/itmes")
    assert reply.status_code == 404
    assert "did you mean &#39;items&#39;?" in reply.text


async def test_hostile_items_are_shown_and_do_not_act(api: Api) -> None:
    item = dict.fromkeys(("answer", "subject", "level", "id"), HOSTILE)
    reply = await api.upload("datasets", "evil", [{"question": HOSTILE + "a" * 32_000, **item}])
    assert reply.status_code == 201, reply.text
    page = await text(api, "/datasets/evil")
    assert "<script>alert" not in page
    assert page.count("U+202E") >= 5
    assert "characters</span></summary>" in page
