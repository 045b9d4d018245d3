"""The page of a job: where it stands, what was decided, what may be done with it."""

import asyncio
import re

import pytest

from shared import canonical
from shared.runtime import queue
from shared.runtime.lifecycle import finish_due_jobs
from shared.samples import GateDecision, Strategy
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import HeldPolls, look, send, sign_in, statements, text, token

pytestmark = pytest.mark.anyio

GATED = {"gate": {"min_pairs": 5}}
HOSTILE = "<script>alert(1)</script>\u202e$x$"


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
    for stage in ("retrieve", "generate", "grade"):
        assert f'<th scope="row">{stage}</th>' in page


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
    assert "1 replies had no rating" in words(page)


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
    await api.job("closed-book", metadata={HOSTILE[:60]: HOSTILE})
    await scene.run_sql(
        database, "UPDATE jobs SET name = :bad, state = 'failed', reason = :bad, ended_at = now()", bad=HOSTILE
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


async def test_what_is_watched_is_the_same_for_everybody(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    await scene.run_sql(
        database, "UPDATE jobs SET state = 'failed', reason = :bad, ended_at = now()", bad=f"{HOSTILE}\ndata: x\n\n"
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
        await queue.note_outage(connection, [await scene.model(database)], "Ollama at 127.0.0.1", HOSTILE)
    page = await text(api, "/jobs/a-job")
    assert "No guard serves a-generator as it was when the job was submitted." in words(page)
    assert "Waits for Ollama at 127.0.0.1, unavailable since" in words(page)
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
