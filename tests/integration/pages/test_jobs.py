"""The list of jobs: what a row says, filters and orders that pages keep, and what changes while somebody watches."""

import asyncio
import re

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import HeldPolls, look, rows, statements, text, watching

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
