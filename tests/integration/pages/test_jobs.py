"""Jobs as pages: the list, one job, and what it costs."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator.web.job import Fragment, stream
from shared import canonical
from shared.pages.pages import format_ago
from shared.runtime import queue
from shared.runtime.lifecycle import finish_due_jobs
from shared.samples import GateDecision, Strategy
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import HeldPolls, look, rows, send, sign_in, statements, text, token, watching
from tests.integration.pages.test_compare import HOSTILE, always
from tests.integration.test_comparison import right

pytestmark = pytest.mark.anyio


# The list of jobs: what a row says, filters and orders that pages keep, and what changes while somebody watches.


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


async def test_what_is_not_there_is_a_page_that_says_so(answered: Api, subtests: pytest.Subtests) -> None:
    for query, status in (
        ("left=right", 422),
        (BOTH.replace("right=wrong", "right=nobody"), 404),
        (BOTH + "&right_repeat=7", 404),
        (BOTH.replace("left_index=1", "left_index=-1"), 422),
        (BOTH.replace("left_index=1", "left_index=99"), 404),
        (BOTH + "&style=x", 422),
    ):
        for path in ("cases", "cases.html"):
            with subtests.test(query=query, path=path):
                assert (await look(answered, f"/compare/{path}?{query}")).status_code == status


async def test_a_document_that_was_deleted_is_named(answered: Api, plant: Plant) -> None:
    await plant("DELETE FROM corpus_documents", counted=False)
    await plant("DELETE FROM documents")
    assert "is deleted" in await text(answered, f"/compare/cases?{BOTH}")


# The page of a job: where it stands, what was decided, what may be done with it.

GATED = {"gate": {"min_pairs": 5}}
HOSTILE_TEXT = "<script>alert(1)</script>\u202e$x$"


def words(page: str) -> str:
    main = page.partition("<main")[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())


async def test_a_job_that_waits_says_so_and_what_may_be_done(api: Api) -> None:
    job = await api.job()
    page = await text(api, f"/jobs/{job['name']}")
    assert "Preparing: nothing is graded yet" in words(page) or "Running, 0 of 5 done" in words(page)
    assert f'hx-sse:connect="/live/jobs/{job["id"]}"' in page
    assert "can-pause can-cancel" in page
    assert "mathrag job watch a-job" in page


async def test_a_completed_job_says_how_well_it_did_in_its_headline(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params=GATED)
    await finished(database)
    found = (await api.get(f"/v1/jobs/{job['id']}/report"))["accuracy"]
    value, low, high = (f"{100 * found[part]:.1f}" for part in ("value", "low", "high"))
    page = await text(api, f"/jobs/{job['id']}")
    assert f"Completed: {value} % right ({low} to {high}), {found['correct']} of 5" in words(page)
    assert "hx-sse:connect" not in page
    assert f'href="/v1/jobs/{job["id"]}"' in page
    assert "Progress" not in words(page)


async def test_a_running_job_shows_its_progress_by_stage(api: Api, database: Database) -> None:
    await api.job("dense")
    await scene.advance(database)
    page = words(await text(api, "/jobs/a-job"))
    assert "Progress Stage Done Calls so far retrieve 0 of 5" in page
    assert "samples 0 of 5" in page


async def test_an_ended_job_shows_its_result_then_its_first_wrong_answers_then_its_cost(
    api: Api, database: Database, plant: Plant
) -> None:
    for name, items in (("all-right", range(5)), ("some-wrong", [4])):
        await api.job("closed-book", name=name, repeats=2)
        await finished(database)
        for repeat in (0, 1):
            await right(plant, name, items, repeat=repeat)
    assert "The first wrong answers" not in await text(api, "/jobs/all-right")
    page = await text(api, "/jobs/some-wrong")
    order = ["Result", "The first wrong answers", "Cost, planned and actual", "Request", "On the command line"]
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page)[: len(order)] == order
    shown = rows(page)
    assert [row.partition(" What")[0] for row in shown] == [f"{n // 2}, repeat {n % 2}" for n in range(5)]
    assert all("What is" in row and "gold" in row and "✗ wrong" in row for row in shown)
    assert re.search(r'<a href="/jobs/[^"]*/samples\?wrong=true">All wrong answers</a>', page)


async def test_the_gates_decision_is_drawn_and_explained(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", params=GATED)
    await finished(database)
    assert "There are too few data to trust rules here" in await text(api, "/jobs/a-job")
    decision = GateDecision(
        strategy=Strategy.RULES, reason="rho = 0.500 > tau = 0.45: rules", tau=0.45, rho=0.5, low=0.3, high=0.7,
        spearman=0.5, documents=("a", "b", "c"), rule_scores=(0.1, 0.5, 0.5), judge_scores=(0.25, 0.5, 0.5), asked=4,
        unparsed=1,
    )  # fmt: skip
    await scene.run_sql(database, "UPDATE jobs SET prepared = :prepared", prepared=canonical.encode(decision))
    page = await text(api, "/jobs/a-job")
    assert "(rho = 0.500 on 3 documents, more than tau = 0.45): rules score. It is a close call" in words(page)
    assert 'aria-label="rho 0.500, between 0.300 and 0.700; tau 0.45"' in page
    assert "1 replies did not contain a rating" in words(page)


async def test_a_job_without_a_gate_shows_none(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    assert "Decision of the gate" not in await text(api, "/jobs/a-job")


async def test_failures_are_counted_by_kind_as_they_come(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, "UPDATE samples SET state = 3, failure = 'poisoned' WHERE ordinal < 2")
    page = words(await text(api, "/jobs/a-job"))
    assert "; 2 failed" in page
    assert "Kind Samples poisoned 2" in page


async def test_a_job_that_cannot_be_read_is_shown_with_what_can(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET params = :params", params=b'{"candidates":7,"gate":{"tua":0.3}}')
    page = await text(api, "/jobs/a-job")
    assert "unknown field `tua`" in page
    assert "&#34;tua&#34;: 0.3" in page
    assert "Completed: " in page


async def test_hostile_texts_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    await api.job("closed-book", metadata={HOSTILE_TEXT[:60]: HOSTILE_TEXT})
    await scene.run_sql(
        database, "UPDATE jobs SET name = :bad, state = 'failed', reason = :bad, ended_at = now()", bad=HOSTILE_TEXT
    )
    id_ = (await api.get("/v1/jobs"))["data"][0]["id"]
    page = await text(api, f"/jobs/{id_}")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
    assert "Failed: " in words(page)


async def test_a_job_that_is_not_there_is_said_not_to_be(api: Api) -> None:
    await api.job()
    reply = await look(api, "/jobs/a-jobb")
    assert reply.status_code == 404
    assert "a-job" in reply.text
    assert (await look(api, "/live/jobs/other")).status_code == 404


async def test_forms_pause_resume_cancel_and_requeue(api: Api, database: Database) -> None:
    job = await api.job()
    at = f"/jobs/{job['id']}"
    for action, said in (("pause", "Paused, 0 of 5 done"), ("resume", "can-pause"), ("cancel", "Cancelling")):
        woken = api.woken
        reply = await send(api, f"{at}/{action}", {})
        assert (reply.status_code, reply.headers["location"]) == (303, at)
        assert api.woken > woken
        assert said in await text(api, at)
    await finish_due_jobs(database)
    assert "Cancelled: nothing was graded; 5 cancelled" in await text(api, at)
    reply = await send(api, f"{at}/requeue", {"once": "abc"})
    again = await send(api, f"{at}/requeue", {"once": "abc"})
    assert reply.headers["location"] == again.headers["location"] != at
    assert f'requeued from <a href="{at}"' in await text(api, reply.headers["location"])


async def test_what_an_ended_job_refuses_is_a_page(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    reply = await send(api, "/jobs/a-job/pause", {})
    assert reply.status_code == 409
    assert "cannot be paused" in reply.text


async def test_only_who_may_submit_sees_buttons_and_may_press_them(keyed: Api, database: Database) -> None:
    await scene.submit_job(database, "closed-book")
    await sign_in(keyed, database, Scope.READ)
    page = await text(keyed, "/jobs/a-job")
    assert "/pause" not in page
    assert (await send(keyed, "/jobs/a-job/pause", {"csrf": token(page)})).status_code == 403


async def test_buttons_work_only_from_a_page_of_the_own_session(keyed: Api, database: Database) -> None:
    await scene.submit_job(database, "closed-book")
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    page = await text(keyed, "/jobs/a-job")
    for action in ("pause", "resume", "cancel", "requeue"):
        assert f'/{action}"' in page
        assert (await send(keyed, f"/jobs/a-job/{action}", {})).status_code == 403
    assert (await send(keyed, "/jobs/a-job/pause", {"csrf": token(page)})).status_code == 303


async def test_many_who_watch_a_job_cost_one_look(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    polls = HeldPolls()
    async with serving(database, redis_url, polls=polls) as api:
        job = await api.job("mathrag-gate", params=GATED)
        await finished(database)
        watchers = [asyncio.create_task(api.http.get(f"/live/jobs/{job['id']}")) for _ in range(10)]
        with statements(database) as seen:
            await polls.let_go(10)
            streams = {(await each).text for each in watchers}
    assert len(streams) == 1
    (stream,) = streams
    assert 'hx-target="#standing"' in stream
    assert 'hx-target="#progress"' in stream
    assert "Completed: " in stream
    assert stream.endswith("event: end\ndata: \n\n")
    assert sum("FROM jobs j JOIN datasets" in statement for statement in seen) == 1


async def test_a_stream_says_nothing_where_only_ages_have_changed() -> None:
    """The page's script words ages anew; a table of fifty jobs would otherwise be sent every second."""
    began = datetime(2026, 11, 28, tzinfo=UTC)
    drawn = iter([
        *(Fragment(f"<td>{format_ago(began, began + timedelta(minutes=n))}</td>") for n in range(3)),
        Fragment(f"<td>{format_ago(began + timedelta(seconds=1), began)}</td>", last=True),
    ])  # fmt: skip

    class Polls:
        async def wait_for_next(self, _: object, read: Callable[[], Awaitable[Fragment]]) -> Fragment:
            return await read()

    async def draw() -> Fragment:
        return next(drawn)

    deps: Any = SimpleNamespace(polls=Polls())
    response: Any = stream(deps, "job", draw)
    events = [event async for event in response.body_iterator]
    assert [event.partition("datetime=")[2][1:21] for event in events] == [
        "2026-11-28T00:00:00Z", "2026-11-28T00:00:01Z", "",
    ]  # fmt: skip


async def test_what_is_watched_is_the_same_for_everybody(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    await scene.run_sql(
        database,
        "UPDATE jobs SET state = 'failed', reason = :bad, ended_at = now()",
        bad=f"{HOSTILE_TEXT}\ndata: x\n\n",
    )
    stream = (await api.http.get(f"/live/jobs/{job['id']}")).text
    assert "<form" not in stream
    assert "csrf" not in stream
    assert "<script>" not in stream
    assert all(line.startswith(("data: ", "event: ")) for line in stream.splitlines() if line)


async def test_time_left_is_an_interval(api: Api, database: Database) -> None:
    await api.upload("datasets", "long", [{"question": f"{n}+1?", "gold": str(n + 1)} for n in range(100)])
    job = await api.job("closed-book", dataset="long")
    await scene.run_sql(database, "UPDATE jobs SET state = 'running', running_at = now()")
    assert "The time left can be estimated once 10 samples have ended." in words(await text(api, "/jobs/a-job"))
    await scene.run_sql(
        database,
        "UPDATE samples SET state = 3, failure = 'poisoned', ended_at = now() + make_interval(secs => ordinal)"
        " WHERE ordinal < 26",
    )
    found = await api.get(f"/v1/jobs/{job['id']}")
    assert (found["eta_seconds"], found["eta_between"]) == (74, [50, 115])
    assert "50 s to 1.9 min left." in words(await text(api, "/jobs/a-job"))


async def test_what_the_job_waits_for_is_said_with_what_to_do(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await scene.advance(database)
    await scene.run_sql(database, "UPDATE models SET served = false WHERE name = 'a-generator'")
    async with database.transaction() as connection:
        await queue.note_outage(connection, [await scene.model(database)], "Ollama at 127.0.0.1", HOSTILE_TEXT)
    page = await text(api, "/jobs/a-job")
    assert "No guard serves a-generator in the version that the job was submitted with." in words(page)
    assert "Waits for Ollama at 127.0.0.1, which became unavailable" in words(page)
    assert "<script>alert" not in page
    assert "waits for Ollama at 127.0.0.1" in words(await text(api, "/jobs"))


async def test_a_job_of_imported_answers_is_not_run_again(api: Api) -> None:
    reply = await api.http.post(
        "/v1/jobs/import", params={"name": "theirs", "dataset": "items"}, content=b'{"index": 0, "answer": "0"}\n'
    )
    assert reply.status_code == 202, reply.text
    page = await text(api, "/jobs/theirs")
    assert "imported" in page
    for absent in ("Requeue", "Run again with changes", "/pipelines/imported", "/price"):
        assert absent not in page


# What a job costs: the plan beside what it took.


def cells(page: str) -> dict[str, list[str]]:
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page, re.DOTALL)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for name, row in rows}


async def test_the_plan_stands_beside_what_the_job_took(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", params={"gate": {"min_pairs": 5}})
    await finished(database)
    report = await api.get("/v1/jobs/a-job/report")
    found = cells(await text(api, "/jobs/a-job/price"))
    assert found["Model loads"][1] == str(report["model_loads"])
    assert found["Generate calls"] == ["5", "5"]
    assert found["Judge calls"][1] == str(report["calls_made"]["judge"])
    assert int(found["Judge calls"][0]) >= report["calls_made"]["judge"]


async def test_what_was_reused_is_told_apart(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await api.job("closed-book")
    await finished(database)
    assert cells(await text(api, "/jobs/a-job-2/price"))["Generate calls"] == ["5", "0 + 5 reused"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE jobs SET params = '[1]'", "cannot be read by this release"),
        ("UPDATE datasets SET name = 'gone'", ""),
        ("UPDATE jobs SET pipeline = 'mine-rules'", "cannot be planned on its own"),
    ],
)
async def test_what_the_job_took_is_shown_where_no_plan_can_be_made(
    api: Api, database: Database, change: str, said: str
) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, change)
    page = await text(api, "/jobs/a-job/price")
    assert cells(page)["Generate calls"][1] == "5"
    assert said in page


async def test_a_job_without_calls_has_a_price_page_and_an_unknown_one_has_none(api: Api) -> None:
    await api.job("closed-book")
    assert cells(await text(api, "/jobs/a-job/price"))["Model loads"][1] == "0"
    assert (await look(api, "/jobs/other/price")).status_code == 404
