"""Comparing jobs as pages: the finding, what is separable, and what cannot be compared."""

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, text
from tests.integration.test_comparison import Answered, answered, right

pytestmark = pytest.mark.anyio
ITEMS = 40
__all__ = ["answered"]


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, ITEMS)
    return empty_api


async def test_the_headline_ranks_only_what_is_separable(api: Api, answered: Answered) -> None:
    """The order is by accuracy, the verdict by the corrected test.

    Of a resample nothing is gained with probability 0.9^40 = 0.0148, more than the 0.0125 of one of two intervals.
    """
    await answered(dense=range(20), hybrid=range(24), weak=range(2))
    page = await text(api, "/compare?jobs=hybrid&jobs=weak&baseline=dense")
    assert "<h1>No variant beats dense at n = 40; hybrid leads by 10 points, not separable; weak is worse" in page
    hybrid, dense, weak = rows(page)
    assert hybrid.startswith("hybrid 60.0 % (44.6 to 73.7) +10.0 (0.0 to +22.5), p = 0.125 not separable")
    assert dense.startswith("dense (baseline) 50.0 %")
    assert weak.startswith("weak 5.0 %")
    assert "p &lt; 0.001 worse 18 changed +0 −18" in weak


async def test_without_a_baseline_each_row_is_held_against_the_best(api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(38), three=range(20))
    page = await text(api, "/compare?jobs=one&jobs=two&jobs=three")
    assert "<h1>two beats all others at n = 40, by 45 points" in page
    assert "p is corrected for 3 comparisons (Holm), and so are the intervals of differences (Bonferroni)" in page
    assert [row.split(" ")[0] for row in rows(page)] == ["two", "one", "three"]
    assert "−45.0" in rows(page)[1]
    assert rows(page)[0].startswith("two (best)")
    assert page.count('<form class="controls" method="get" action="/compare/changed">') == 1


async def test_the_api_has_the_same_comparison(api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(38))
    page = await text(api, "/compare?jobs=one&baseline=two")
    assert 'href="/v1/comparison?job=two&amp;job=one&amp;baseline=two&amp;measure=accuracy"' in page
    found = await api.get("/v1/comparison", job=["two", "one"], baseline="two")
    assert f"<h1>{found['finding']}</h1>" in page


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("jobs=one", 422, "1 job chosen, and a comparison needs 2 to 8"),
        ("jobs=one&jobs=one", 422, "1 job chosen"),
        ("&".join(f"jobs=job-{n}" for n in range(9)), 422, "9 jobs chosen"),
        ("jobs=one&jobs=nowhere", 404, "no job &#39;nowhere&#39;"),
        ("jobs=one&jobs=%3Cscript%3E%E2%80%AE", 404, "&lt;script&gt;"),
        ("jobs=one&jobs=two&measure=beauty", 422, "`measure`"),
        ("jobs=one&jobs=other", 409, "have no measured item in common"),
    ],
)
async def test_what_cannot_be_compared_is_refused_as_a_page(
    api: Api, database: Database, query: str, status: int, said: str
) -> None:
    await scene.add_dataset(database, 5, "others", changed=frozenset(range(5)))
    for name, dataset in (("one", "items"), ("two", "items"), ("other", "others")):
        await api.job(name=name, dataset=dataset)
    await finished(database)
    reply = await look(api, f"/compare?{query}")
    assert reply.status_code == status
    assert said in reply.text
    assert "<script>" not in reply.text
    assert "\u202e" not in reply.text


async def test_equal_jobs_are_not_told_apart(api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(20))
    page = await text(api, "/compare?jobs=one&jobs=two")
    assert "<h1>No two are separable at n = 40</h1>" in page
    assert "no difference on any item" in page
    assert "changed</a>" not in page


async def test_running_jobs_say_that_they_are_not_final(api: Api, database: Database, plant: Plant) -> None:
    await api.job(name="old")
    await finished(database)
    await right(plant, "old", range(20))
    await api.job(name="young", params={"generate": {"max_tokens": 99}})
    page = await text(api, "/compare?jobs=old&jobs=young")
    assert "<h1>Nothing can be compared yet" in page
    assert "&#39;young&#39; is not final" in page
    assert "nothing was graded" in rows(page)[1]


async def test_one_chooses_among_completed_jobs_of_one_dataset(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 5, "single")
    for name, dataset in (("one", "items"), ("two", "items"), ("alone", "single")):
        await api.job(name=name, dataset=dataset)
    await finished(database)
    await scene.repair(database)
    await api.job(name="running")
    page = await text(api, "/compare")
    assert [name for name in ("one", "two", "alone", "running") if f'name="jobs" value="{name}"' in page] == [
        "one", "two",
    ]  # fmt: skip
    assert "<option>single</option>" in page
    assert "Only one job on single is completed" in await text(api, "/compare?dataset=single")
    assert (await look(api, "/compare?dataset=%00")).status_code == 422


async def test_without_a_job_the_page_says_how_to_submit_one(api: Api) -> None:
    assert "mathrag job submit" in await text(api, "/compare")
    assert "No completed job used this dataset" in await text(api, "/compare?dataset=unknown")
