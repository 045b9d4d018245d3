"""Samples that changed between two jobs, and one of them as both answered it, as pages."""

import re

import pytest

from shared.replies import Generated
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, text
from tests.integration.test_comparison import right

pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def always(written: str) -> scene.Answer:
    return lambda request: Generated(text=written) if request.role == "generate" else scene.by_rule(request)


async def jobs(api: Api, database: Database, plant: Plant) -> None:
    await api.job("dense", name="dense")
    await api.job("closed-book", name="closed")
    await finished(database)
    await right(plant, "dense", range(4))
    await right(plant, "closed", [3, 4])


async def test_only_samples_that_changed_are_listed(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    page = await text(api, "/compare/changed?left=dense&right=closed")
    assert "<h1>dense gains 3 and loses 1 against closed</h1>" in page
    assert [row.split(" ")[0] for row in rows(page)] == ["0", "1", "2", "4"]
    assert [
        row.split(" ")[0] for row in rows(await text(api, "/compare/changed?left=dense&right=closed&only=lost"))
    ] == ["4"]
    assert 'href="/v1/comparison/samples?left=dense&amp;right=closed"' in page


async def test_long_lists_have_pages(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    page = await text(api, "/compare/changed?left=dense&right=closed&only=gained&limit=2")
    (following,) = re.findall(r'href="([^"]+)" rel="next"', page)
    rest = await text(api, following.replace("&amp;", "&"))
    assert [row.split(" ")[0] for row in rows(page) + rows(rest)] == ["0", "1", "2"]


async def test_equal_jobs_have_no_changed_sample(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    await right(plant, "dense", [3, 4])
    page = await text(api, "/compare/changed?left=dense&right=closed")
    assert "have the same verdict everywhere" in page
    assert "No sample changed." in page


async def test_one_sample_stands_as_both_answered_it(api: Api, database: Database) -> None:
    for name, pipeline, said in (("dense", "dense", 2), ("closed", "closed-book", 3)):
        await api.job(pipeline, name=name)
        await scene.drain(database, scene.ScriptedExecutor(always(f"\\boxed{{{said}}}")))
    page = await text(api, "/compare/sample?left=dense&right=closed&index=1")
    assert "<h1>Sample 1: What is 1 plus 1?</h1>" in page
    assert page.count('class="verdict right"') == page.count('class="verdict wrong"') == 1
    assert "<strong>only here</strong>" in page
    left = re.findall(r'<tr class="left">.*?</tr>', page, re.DOTALL)
    assert any("Therefore" in line for line in left)
    assert 'href="/jobs/dense/samples/1?repeat=0"' in page


async def test_hostile_texts_are_shown_and_do_not_act(api: Api, database: Database, plant: Plant) -> None:
    await plant("UPDATE items SET question = question || :hostile", hostile=HOSTILE.replace("\x1b", "\x07"))
    await api.job(name="one")
    await scene.drain(database, scene.ScriptedExecutor(always(f"{HOSTILE} {'x' * 1_000_000} \\boxed{{{HOSTILE}}}")))
    await api.job(name="two", reuse="none")
    await finished(database)
    await right(plant, "one", [])
    await right(plant, "two", range(5))
    for path in ("/compare/changed?left=one&right=two", "/compare/sample?left=one&right=two&index=0"):
        page = await text(api, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "U+202E" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("changed?left=dense", 422), ("changed?left=dense&right=dense", 422), ("changed?left=dense&right=nobody", 404),
        ("changed?left=dense&right=closed&only=%3Cb%3E", 422), ("changed?left=dense&right=closed&cursor=x", 400),
        ("sample?left=dense&right=closed", 422), ("sample?left=dense&right=closed&index=5", 404),
        ("sample?left=dense&right=closed&index=-1", 422),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_a_page_that_says_so(
    api: Api, database: Database, plant: Plant, path: str, status: int
) -> None:
    await jobs(api, database, plant)
    reply = await look(api, f"/compare/{path}")
    assert reply.status_code == status
    assert "<h1>" in reply.text
    assert "<b>" not in reply.text
