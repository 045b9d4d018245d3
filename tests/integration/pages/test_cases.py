"""Two samples as a figure: to look at, and as one file that runs nothing."""

import re

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, text
from tests.integration.pages.test_changed import HOSTILE, always

pytestmark = pytest.mark.anyio
BOTH = "left=right&left_index=1&right=wrong&right_index=2"


@pytest.fixture
async def answered(api: Api, database: Database) -> Api:
    for name, said in (("right", "\\boxed{2}"), ("wrong", f"{HOSTILE} $x^2$ \\boxed{{$y^2$ {HOSTILE}}}")):
        await api.job("mathrag-gate", name=name, reuse="none", params={"gate": {"min_pairs": 2}})
        await scene.drain(database, scene.ScriptedExecutor(always(said)))
    return api


async def test_a_success_and_a_failure_stand_beside_each_other(answered: Api) -> None:
    page = await text(answered, f"/compare/cases?{BOTH}")
    assert "<h1>A success and a failure</h1>" in page
    assert "What is 1 plus 1?" in page
    assert "What is 2 plus 2?" in page
    assert page.count('class="verdict right"') == page.count('class="verdict wrong"') == 1
    assert re.search(r"quality [01]", page)
    assert (
        f'href="/compare/cases.html?{BOTH.replace("&right=", "&left_repeat=0&right=")}&right_repeat=0"'
        in page.replace("&amp;", "&")
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("left=right&left_index=1&right=right&right_index=1", "Two successes"),
        ("left=wrong&left_index=1&right=right&right_index=2", "Two failures"),
        ("left=wrong&left_index=1&right=right&right_index=1", "A failure and a success"),
    ],
)
async def test_the_headline_says_what_the_two_are(answered: Api, query: str, said: str) -> None:
    assert f"<h1>{said}</h1>" in await text(answered, f"/compare/cases?{query}")


async def test_a_case_without_a_verdict_is_only_a_case(answered: Api, database: Database) -> None:
    await answered.job(name="waiting", reuse="none")
    page = await text(answered, "/compare/cases?left=right&left_index=1&right=waiting&right_index=1")
    assert "<h1>Two cases</h1>" in page


async def test_the_file_needs_nothing_and_runs_nothing(answered: Api) -> None:
    reply = await look(answered, f"/compare/cases.html?{BOTH}")
    assert reply.status_code == 200
    assert reply.headers["content-disposition"] == 'attachment; filename="cases-right-1-wrong-2.html"'
    assert "<script" not in reply.text
    assert "script-src &#39;none&#39;" in reply.text
    assert "<style>" in reply.text
    for part in ('href="/', 'src="', "url(", "@import"):
        assert part not in reply.text, part
    assert "&lt;script&gt;alert(1)" in reply.text
    assert "\u202e" not in reply.text
    assert "$x^2$" in reply.text


async def test_without_cases_there_is_a_form(api: Api) -> None:
    page = await text(api, "/compare/cases")
    assert page.count('name="left_index"') == page.count('name="right_index"') == 1


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("left=right", 422), (BOTH.replace("right=wrong", "right=nobody"), 404), (BOTH + "&right_repeat=7", 404),
        (BOTH.replace("left_index=1", "left_index=-1"), 422), (BOTH.replace("left_index=1", "left_index=99"), 404),
        (BOTH + "&style=x", 422),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["cases", "cases.html"])
async def test_what_is_not_there_is_a_page_that_says_so(answered: Api, path: str, query: str, status: int) -> None:
    assert (await look(answered, f"/compare/{path}?{query}")).status_code == status


async def test_a_document_that_was_deleted_is_named(answered: Api, plant: Plant) -> None:
    await plant("DELETE FROM corpus_documents", counted=False)
    await plant("DELETE FROM documents")
    assert "is deleted" in await text(answered, f"/compare/cases?{BOTH}")
