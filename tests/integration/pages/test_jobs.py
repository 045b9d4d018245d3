import asyncio
import re

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import HeldPolls, look, rows, statements, text, watching
from tests.integration.pages.test_changed import HOSTILE, always

# The list of jobs: what a row says, filters and orders that pages keep, and what changes while somebody watches.


pytestmark = pytest.mark.anyio


def names(page: str) -> list[str]:
    return [row.split()[0] for row in rows(page)]


async def some(api: Api, *wanted: str) -> None:
    for name in wanted:
        await api.job(name=name)


async def test_without_jobs_there_is_a_sentence_and_the_next_command(api: Api) -> None:
    assert "mathrag job submit" in await text(api, "/jobs")
    assert "No job matches these filters." in await text(api, "/jobs?state=failed")


async def test_a_row_says_how_far_the_job_is_and_how_well_it_did(api: Api, database: Database) -> None:
    job = await api.job("closed-book", name="done")
    await finished(database)
    await some(api, "waits")
    found = (await api.get(f"/v1/jobs/{job['id']}/report"))["accuracy"]
    value, low, high = (f"{100 * found[part]:.1f}" for part in ("value", "low", "high"))
    waits, done = rows(await text(api, "/jobs"))
    assert done.startswith(f"done completed 5 of 5 {value} % ({low} to {high}) 0 closed-book items ")
    assert waits.startswith("waits running 0 of 5 – 0 closed-book items ")
    listed = (await api.get("/v1/jobs"))["data"]
    assert [row.get("accuracy") for row in listed] == [None, found]
    assert (await api.get("/v1/jobs/done"))["accuracy"] == found


async def test_a_list_is_filtered_by_a_part_of_the_name_and_sorted(api: Api, database: Database) -> None:
    await some(api, "Beta", "alpha-2", "gamma", "alpha-1")
    await scene.run_sql(database, "UPDATE jobs SET state = 'failed', ended_at = now() WHERE name = 'alpha-1'")
    for query, expected in (
        ("", ["alpha-1", "gamma", "alpha-2", "Beta"]),
        ("?name_contains=ALPHA", ["alpha-1", "alpha-2"]),
        ("?name_contains=A&sort=name&limit=500", sorted(["Beta", "alpha-2", "gamma", "alpha-1"])),
        ("?sort=state", ["gamma", "alpha-2", "Beta", "alpha-1"]),
        ("?state=failed&sort=name", ["alpha-1"]),
        ("?name_contains=%25", []),
    ):
        assert names(await text(api, f"/jobs{query}")) == expected, query
        listed = await api.http.get(f"/v1/jobs{query}")
        assert [job["name"] for job in listed.json()["data"]] == expected, query


@pytest.mark.parametrize("sort", ["newest", "name", "state"])
async def test_pages_of_every_order_hold_every_job_once(api: Api, database: Database, sort: str) -> None:
    await some(api, *(f"job-{n % 3}-{n}" for n in range(7)))
    await scene.run_sql(database, "UPDATE jobs SET state = 'paused' WHERE name LIKE 'job-1%'")
    whole = names(await text(api, f"/jobs?sort={sort}"))
    path: str | None = f"/jobs?sort={sort}&limit=2&name_contains=job"
    found: list[str] = []
    while path is not None:
        page = await text(api, path)
        found += names(page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        path = following[1].replace("&amp;", "&") if following else None
    assert found == whole
    assert len(set(found)) == 7


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("state=sleeping", 422, "state"),
        ("sort=accuracy", 422, "sort"),
        ("name_contains=" + "x" * 101, 422, "name_contains"),
        ("cursor=x", 400, "cursor"),
        ("experiment=%3Cscript%3E", 422, "experiment"),
        ("name_contains=%00", 422, "name_contains"),
    ],
)
async def test_a_bad_filter_is_said_to_be_bad(api: Api, query: str, status: int, said: str) -> None:
    reply = await look(api, f"/jobs?{query}")
    assert reply.status_code == status
    assert said in reply.text
    assert "<script>alert" not in reply.text


async def test_a_cursor_of_another_order_is_refused(api: Api) -> None:
    await some(api, "one", "two")
    cursor = (await api.get("/v1/jobs", limit=1, sort="name"))["next_cursor"]
    assert [job["name"] for job in (await api.get("/v1/jobs", limit=1, sort="name", cursor=cursor))["data"]] == ["two"]
    for sort in ("newest", "state"):
        assert (await api.http.get("/v1/jobs", params={"sort": sort, "cursor": cursor})).status_code == 400


async def test_hostile_names_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await scene.run_sql(database, "UPDATE jobs SET name = :bad", bad="<script>alert(1)</script>\u202e")
    page = await text(api, "/jobs")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


async def test_a_page_takes_few_statements_however_many_jobs_it_shows(api: Api, database: Database) -> None:
    counts = []
    for name in ("first", "second", "third"):
        await some(api, name, f"{name}-2")
        await finished(database)
        with statements(database) as seen:
            await text(api, "/jobs")
        counts.append(len(seen))
    with statements(database) as seen:
        await text(api, "/jobs")
    assert counts[0] == counts[1] == counts[2]
    assert len(seen) < counts[0] <= 7


async def test_whoever_watches_sees_a_job_come_and_change(api: Api) -> None:
    await some(api, "first")
    async with watching(api, "/live/jobs?sort=name") as pieces:
        assert 'hx-target="#jobs"' in (event := await pieces.get())
        assert names(event) == ["first"]
        await some(api, "alpha")
        assert names(await pieces.get()) == ["alpha", "first"]


async def test_many_who_watch_cost_one_look(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    polls = HeldPolls()
    async with serving(database, redis_url, polls=polls) as api:
        await some(api, "first")
        async with (
            watching(api, "/live/jobs") as one,
            watching(api, "/live/jobs") as two,
            watching(api, "/live/jobs") as three,
            watching(api, "/live/jobs?state=failed") as other,
        ):
            with statements(database) as seen:
                await polls.let_go(4)
                events = await asyncio.gather(*(pieces.get() for pieces in (one, two, three, other)))
    assert [len(rows(event)) for event in events] == [1, 1, 1, 0]
    assert sum("ORDER BY j.id DESC" in statement for statement in seen) == 2


# Two samples as a figure: to look at, and as one file that runs nothing.

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
