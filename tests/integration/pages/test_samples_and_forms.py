import asyncio
import contextlib
import html
import io
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from sqlalchemy import event

from mathrag.client.client import Client
from services.orchestrator.api.samples import PROVENANCE
from services.orchestrator.web import sample
from shared.calls import Request
from shared.params import Params
from shared.replies import Failure, FailureKind, Generated, Rated, Reply
from shared.shapes import Scope
from shared.storage import samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.pages import browsing
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token
from tests.integration.test_access import KEYED
from tests.integration.test_plans_api import SETTINGS, api

# `/plan`: what a job would come to, before anything is submitted.


__all__ = ["api"]
pytestmark = pytest.mark.anyio
PLAN_JOB = {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
CARD = {"models.judge": "qwen2.5-0.5b:f16", "models.generate": "qwen2.5-7b:q4_k_m"}


def plan(**values: object) -> str:
    return f"/plan?{urlencode({**PLAN_JOB, **values})}"


def heading(page: str) -> str:
    return html.unescape(page.partition("<h1>")[2].partition("</h1>")[0])


def value(page: str, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
    assert found is not None, name
    return html.unescape(found[0].partition('value="')[2].partition('"')[0])


async def test_the_headline_says_whether_it_fits_and_what_it_costs(api: Api) -> None:
    page = await text(api, plan())
    assert heading(page).startswith("Fits 160 MiB with 2 loads, ")
    assert 'aria-label="a-judge ×4 96 MiB; budget 160 MiB"' in page
    assert re.search(r'<th scope="row">generate</th><td[^>]*>6<', page)
    assert "192 MiB (a-judge 96 with slots: 4, a-generator 96 with slots: 4) of 160 on cpu:0" in page


async def test_what_cannot_fit_says_what_to_change_and_links_to_it(api: Api) -> None:
    page = await text(api, plan(memory=50))
    assert heading(page) == "Does not fit 50 MiB"
    assert "fits nowhere" in page
    assert "46 MiB too much" in page
    assert "Submit this" not in page
    link = html.unescape(re.findall(r'<a href="(/plan\?[^"]*)">Plan with 192 MiB</a>', page)[0])
    assert heading(await text(api, link)).startswith("Fits 192 MiB with 2 loads")


@pytest.mark.parametrize(
    ("sent", "planned"),
    [
        ({"memory": "200", "card": "160", "was": "160"}, "200"),
        ({"memory": "160", "card": "300.4", "was": "160"}, "300"),
        ({"memory": "170", "card": "300", "was": "160"}, "170"),
        ({"memory": "160", "card": "160", "was": "160"}, "160"),
        ({"memory": "lots", "card": "x", "was": "nan"}, "160"),
    ],
)
async def test_slider_and_number_are_one_value_without_a_script(api: Api, sent: dict[str, str], planned: str) -> None:
    page = await text(api, plan(**sent))
    assert (value(page, "memory"), value(page, "card"), value(page, "was")) == (planned,) * 3


async def test_models_that_are_not_there_are_planned_for_a_card(api: Api) -> None:
    page = await text(api, plan(dataset="", questions=500, **CARD))
    assert heading(page).startswith("Fits 12,288 MiB with 2 loads")
    assert "Memory of gpu:0" in page
    assert "qwen2.5-0.5b f16" in page


async def test_another_device_has_another_memory(api: Api) -> None:
    page = await text(api, plan(memory=160, card=160, was=160, device="cpu:0", **CARD))
    assert value(page, "memory") == "12288"
    back = await text(api, plan(memory=12288, card=12288, was=12288, device="gpu:0"))
    assert value(back, "memory") == "160"


async def test_submit_has_the_same_values_but_for_what_is_not_there(api: Api) -> None:
    page = await text(api, plan(repeats=2, memory=9000, **{"params.candidates": 7, **CARD}))
    link = html.unescape(page.partition('href="/submit?')[2].partition('"')[0])
    assert link == urlencode({**PLAN_JOB, "repeats": 2, "params.candidates": 7})


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({"dataset": "nope"}, 404, "no dataset 'nope'"),
        ({"corpus": "nope"}, 404, "no corpus 'nope'"),
        ({"pipeline": "mathrag-gat"}, 422, "did you mean 'mathrag-gate'?"),
        ({"repeats": "0"}, 422, "greater than or equal to 1"),
        ({"dataset": ""}, 422, "give either `job.dataset` or `questions`"),
        ({"questions": "3"}, 422, "and not both"),
        ({"memory": "0"}, 422, "greater than 0"),
        ({"models.judge": "nobody"}, 422, "'nobody'"),
        ({"models.nobody": "a-judge"}, 422, "no role 'nobody'"),
        ({"params.gate.tau": "2"}, 422, "must be between -1 and 1"),
        ({"params.hyde.documents": "2"}, 422, "mathrag-gate would not read it"),
        ({"corpus": ""}, 422, "needs one"),
    ],
)
async def test_bad_values_are_said_with_the_apis_words(
    api: Api, values: dict[str, str], status: int, words: str
) -> None:
    reply = await look(api, plan(**values))
    assert reply.status_code == status, reply.text
    assert words in html.unescape(re.sub("</?code>", "`", reply.text))
    assert heading(reply.text) == "Plan"


async def test_hostile_values_are_texts_in_plan(api: Api) -> None:
    hostile = '"><script>alert(1)</script>'
    names = ("dataset", "pipeline", "corpus", "repeats", "models.judge", "params.gate.tau", "memory", "params.x.y")
    for name in names:
        assert "<script>alert" not in (await look(api, plan(**{name: hostile}))).text, name


async def test_an_empty_service_says_how_to_begin_in_plan(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url, SETTINGS) as bare:
        page = await text(bare, "/plan")
    assert "mathrag dataset create NAME FILE" in page


async def test_planning_needs_the_scope_read_and_submitting_more(database: Database, redis_url: str) -> None:
    await scene.furnish(database, 2)
    async with serving(database, redis_url, KEYED) as keyed:
        assert (await look(keyed, plan())).status_code == 303
        await sign_in(keyed, database, Scope.READ)
        assert "Submit this" not in await text(keyed, plan())
        await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
        assert "Submit this" in await text(keyed, plan())


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


# A job's report as a page.


async def test_a_report_begins_with_what_was_found_and_says_what_it_cost(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    await finished(database)
    found = await api.get("/v1/jobs/first/report")
    page = await browsing.text(api, "/jobs/first/report")
    right = found["accuracy"]
    assert f"<h1>{100 * right['value']:.1f} % right" in page
    assert f"{right['correct']} of {right['graded']}</h1>" in page
    assert "mathrag report bundle first" in page
    assert f'href="/v1/jobs/{found["id"]}/report"' in page


async def test_a_job_that_has_not_ended_has_a_report_so_far(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    page = await browsing.text(api, "/jobs/first/report")
    assert "<h1>Nothing was graded</h1>" in page


async def test_there_is_no_report_of_an_unknown_job(api: Api) -> None:
    assert (await browsing.look(api, "/jobs/nobody/report")).status_code == 404


async def test_names_of_subjects_are_text(api: Api, database: Database) -> None:
    lines = [{"question": "What is 1+1?", "gold": "2", "subject": "<script>alert(1)</script>"}]
    assert (await api.upload("datasets", "hostile", lines)).status_code == 201
    await api.job("closed-book", name="first", dataset="hostile", corpus=None)
    await finished(database)
    page = await browsing.text(api, "/jobs/first/report")
    assert "<script>alert" not in page
    assert scene.SETTINGS.roles["generate"] in page


# A sample's page says how its answer came about, whatever the texts hold and however it ended.

SAMPLE_HOSTILE = "<script>alert(1)</script> \u202egnp.exe {{ 7*7 }} <img src=x onerror=alert(1)>"
SAMPLE_PAGE = "/jobs/a-job/samples/1"


async def drained(database: Database, answer: scene.Answer) -> None:
    await scene.drain(database, scene.ScriptedExecutor(answer))


def saying(written: str) -> scene.Answer:
    def answer(request: Request) -> Reply:
        return Generated(text=written) if request.role == "generate" else scene.by_rule(request)

    return answer


async def test_a_gated_sample_shows_its_documents_before_and_after_reranking(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", params={"quality": "judge"}, repeats=2)
    await finished(database)
    page = await text(api, f"{SAMPLE_PAGE}?repeat=1")
    assert "Sample 1, repeat 1 of a-job" in page
    assert 'aria-label="Ranks: ' in page
    assert "quality scored by the judge" in page
    assert "What is 1 plus 1?" in page
    assert "generate: a-generator" in page
    assert "Solve the problem step by step" in page
    assert 'href="/jobs/' in page.partition('data-key="p"')[0]
    assert page.count('rel="next"') == page.count('rel="prev"') == 1
    first, last = await text(api, "/jobs/a-job/samples/0"), await text(api, "/jobs/a-job/samples/4?repeat=1")
    assert 'rel="prev"' not in first
    assert 'rel="next"' not in last


async def test_a_sample_of_very_many_calls_shows_the_first_and_the_last(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "MOST_CALLS", 8)
    await api.job("mathrag-gate", params={"quality": "judge"})
    await finished(database)
    page = await text(api, SAMPLE_PAGE)
    assert "8 of 14 calls" in page
    assert "3.0 grade: grader" in page
    assert "1.9 judge" not in page


async def test_right_and_wrong_are_told_at_a_glance_with_the_gold_answer(api: Api, database: Database) -> None:
    await api.job()
    await drained(database, saying("so $1+1=2$ and $1+1=3$: \\boxed{2}"))
    right, wrong = await text(api, SAMPLE_PAGE), await text(api, "/jobs/a-job/samples/2")
    assert "✓ right" in right
    assert "✗ wrong: arithmetic" in wrong
    assert "<dt>Gold</dt><dd>4</dd>" in wrong
    assert "1 of 2 hold, 1 do not" in wrong
    assert '<span class="math">so $1+1=2$' in wrong


async def test_a_closed_book_sample_says_that_no_document_was_searched_for(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    page = await text(api, SAMPLE_PAGE)
    assert "There was no search" in page
    assert "<svg viewBox" not in page


@pytest.mark.parametrize("pipeline", ["self-rag", "crag", "critic-loop", "enhanced", "hyde", "self-consistency"])
async def test_what_each_method_decided_is_said_in_words(api: Api, database: Database, pipeline: str) -> None:
    await api.job(pipeline)
    await finished(database)
    page = await text(api, SAMPLE_PAGE)
    decided = page.partition("<h2>Decisions</h2>")[2].partition("</ol>")[0]
    assert decided.count("<li>") >= 1
    assert "not known" not in decided
    assert not re.search("[0-9a-f]{64}", decided)


async def test_a_sample_without_an_answer_says_why(api: Api, database: Database) -> None:
    await api.job()
    assert "It has not ended yet (ready)" in await text(api, SAMPLE_PAGE)
    failure = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail=SAMPLE_HOSTILE)
    await drained(database, lambda request: failure if request.role == "generate" else scene.by_rule(request))
    page = await text(api, SAMPLE_PAGE)
    assert "<strong>Failed:</strong> context_exceeded" in page
    assert "<script>alert" not in page
    await scene.run_sql(database, "UPDATE samples SET state = 4, failure = NULL")
    assert "Cancelled before it had an answer" in await text(api, SAMPLE_PAGE)


async def test_hostile_texts_are_shown_and_do_not_act_in_sample(api: Api, database: Database) -> None:
    await scene.run_sql(
        database, "UPDATE items SET question = :h, gold = :h, subject = :h, custom_id = :h", h=SAMPLE_HOSTILE
    )
    await api.job("mathrag-gate", params={"quality": "judge"})
    long = SAMPLE_HOSTILE + "x" * 1_000_000

    def answer(request: Request) -> Reply:
        match request.role:
            case "judge":
                return Rated(rating=3, text=SAMPLE_HOSTILE)
            case "generate":
                return Generated(text=f"{long} \\boxed{{{SAMPLE_HOSTILE}}}")
            case _:
                return scene.by_rule(request)

    await drained(database, answer)
    page = await text(api, SAMPLE_PAGE)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "U+202E" in page
    assert "all 1,000," in page
    assert len(page) < 4_000_000


async def test_what_this_release_cannot_read_is_said_and_the_rest_is_shown(
    api: Api, database: Database, plant: Plant
) -> None:
    await api.job()
    await finished(database)
    await plant("UPDATE attempts SET reply = :r", r=b'{"type":"telegram"}')
    page = await text(api, SAMPLE_PAGE)
    assert "cannot be read by this release" in page
    await plant("UPDATE outcomes SET outcome = :o", o=b'{"answer":5}')
    await scene.run_sql(database, "UPDATE jobs SET params = :p", p=b'{"gate":{"tua":0.3}}')
    page = await text(api, SAMPLE_PAGE)
    assert "its outcome cannot be read by this release" in page
    assert "What is 1 plus 1?" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [("/jobs/a-job/samples/99", 404), ("/jobs/nobody/samples/0", 404), ("/jobs/a-job/samples/x", 422),
     ("/jobs/a-job/samples/0?repeat=x", 422), ("/jobs/a-job/samples/0?repeat=7", 404)],
)  # fmt: skip
async def test_a_sample_that_is_not_there_is_said_to_be_so(api: Api, path: str, status: int) -> None:
    await api.job()
    reply = await look(api, path)
    assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")


async def test_the_shown_python_asks_for_this_sample(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.job()
    await finished(database)
    code = (
        (await text(api, SAMPLE_PAGE))
        .partition("<h3>Python</h3>")[2]
        .partition('<pre class="copy">')[2]
        .partition("</pre>")[0]
    )
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json={**PROVENANCE, "text": "so"})

    monkeypatch.setattr(Client, "transport", httpx2.MockTransport(answer))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code.replace("&#39;", "'").replace("&#34;", '"'), {})  # noqa: S102 - the page's own code
    assert printed.getvalue() == "completed so\n"
    assert (await api.http.get(asked[0].url.raw_path.decode())).json()["index"] == 1


async def test_the_shown_command_names_the_key_where_keys_are_asked_for(keyed: Api, database: Database) -> None:
    key = await sign_in(keyed, database, Scope.OPERATE)
    await scene.submit_job(database, "closed-book")
    await scene.advance(database)
    page = await text(keyed, SAMPLE_PAGE)
    assert "Authorization: Bearer $MATHRAG_API_KEY" in page
    assert key not in page


# The page of a job's samples: what it lists, its filters, where it goes on, and how failed samples are asked again.

SAMPLES_PAGE = "/jobs/a-job/samples"
SAMPLES_HOSTILE = "<script>alert(1)</script> \u202egnp.exe <img src=x onerror=alert(1)>"


def failing(request: Request) -> Reply:
    if request.role == "generate" and " 2 plus" in str(request.values["question"]):
        return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long")
    return scene.by_rule(request)


async def test_a_row_says_question_answer_gold_and_ending(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE items SET subject = 'Algebra', level = '3' WHERE ordinal = 1")
    await api.job(repeats=2)
    await finished(database)
    page = await text(api, SAMPLES_PAGE)
    assert "10 samples: 10 completed" in page
    drawn = rows(page)
    assert len(drawn) == 10
    assert re.match(r"1, repeat 0 What is 1 plus 1\? Algebra · level 3 \d gold 2 (✓ right|✗ wrong logic)", drawn[2])
    assert page.count("/samples/1?repeat=1") == 1
    assert (await look(api, re.search(r'href="(/jobs/[^"]+/samples/1\?repeat=1)"', page)[1])).status_code == 200  # type: ignore[index]


async def test_the_address_is_the_filter(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE items SET subject = (ARRAY['Algebra', 'Geometry'])[1 + ordinal % 2]")
    await api.job()
    await scene.drain(database, scene.ScriptedExecutor(failing))
    page = await text(api, f"{SAMPLES_PAGE}?subject=Algebra&limit=1&state=&text=")
    assert len(rows(page)) == 1
    assert '<option value="Algebra" selected>' in page
    assert '/samples?subject=Algebra&amp;limit=1"' in page
    further = re.search(r'href="([^"]+)" rel="next"', page)[1].replace("&amp;", "&")  # type: ignore[index]
    second = await text(api, further)
    assert "subject=Algebra" in further
    assert rows(second) != rows(page)
    assert 'rel="prev"' in second
    assert rows(await text(api, f"{SAMPLES_PAGE}?state=failed")) == ["2 What is 2 plus 2? Algebra none gold 4 failed"]
    assert (
        len(rows(await text(api, f"{SAMPLES_PAGE}?correct=false")))
        + len(rows(await text(api, f"{SAMPLES_PAGE}?correct=true")))
        == 4
    )


async def test_where_nothing_is_found_the_page_says_whether_to_look_on(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.job()
    assert "There is no sample like that" not in await text(api, SAMPLES_PAGE)
    await finished(database)
    assert "No sample matches these filters" in await text(api, f"{SAMPLES_PAGE}?text=nowhere")
    monkeypatch.setattr(samples, "WINDOW", 2)
    page = await text(api, f"{SAMPLES_PAGE}?text=nowhere")
    assert "No sample so far matches these filters" in page
    assert 'rel="next"' in page


async def test_a_job_without_samples_says_when_there_will_be_some(api: Api, database: Database) -> None:
    await api.job("mathrag-gate")
    assert "There is no sample yet" in await text(api, SAMPLES_PAGE)


async def test_failed_samples_are_asked_again_as_a_new_job(keyed: Api, database: Database) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor(failing))
    await sign_in(keyed, database, Scope.READ)
    page = await text(keyed, SAMPLES_PAGE)
    assert "1 failed" in page
    assert "Requeue" not in page
    refused = await send(keyed, "/jobs/a-job/requeue", {"csrf": token(page)})
    assert refused.status_code == 403
    keyed.http.cookies.clear()
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    page = await text(keyed, SAMPLES_PAGE)
    assert "Requeue the 1 failed" in page
    reply = await send(keyed, "/jobs/a-job/requeue", {"csrf": token(page)})
    assert reply.status_code == 303
    assert "a-job-r2" in await text(keyed, f"{reply.headers['location']}/samples")


async def test_hostile_texts_are_shown_and_do_not_act_in_samples(api: Api, database: Database, plant: Plant) -> None:
    await scene.run_sql(
        database,
        "UPDATE items SET question = :h || repeat('x', 1000000), gold = :h, subject = :h, level = :h",
        h=SAMPLES_HOSTILE,
    )
    await api.job()
    await finished(database)
    page = await text(api, f"{SAMPLES_PAGE}?text=%3Cscript%3E")
    assert len(rows(page)) == 5
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", page)
    assert len(page) < 60_000
    await plant("UPDATE outcomes SET outcome = :o", o=b'{"answer":5}')
    assert len(rows(await text(api, SAMPLES_PAGE))) == 5


@pytest.mark.parametrize(
    ("query", "status"), [("state=asleep", 422), ("cursor=x", 400), ("limit=9999", 422), ("colour=red", 422)]
)
async def test_a_filter_that_cannot_be_used_is_said_to_be_so(api: Api, query: str, status: int) -> None:
    await api.job()
    reply = await look(api, f"{SAMPLES_PAGE}?{query}")
    assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert (await look(api, "/jobs/nobody/samples")).status_code == 404


async def test_a_page_costs_as_many_statements_however_many_samples_it_lists(api: Api, database: Database) -> None:
    await api.job(repeats=20)
    await finished(database)
    counted = []
    for limit in (1, 100):
        await text(api, f"{SAMPLES_PAGE}?limit={limit}")  # the subjects are kept
        counted.append(await statements(api, database, f"{SAMPLES_PAGE}?limit={limit}"))
    assert counted[0] == counted[1] <= 10


async def statements(api: Api, database: Database, path: str) -> int:
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    await text(api, path)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    return len(sent)


# `/submit`: a job by a form: what is wrong beside its field, dry runs, and one job however often it is sent.

SUBMIT_JOB = {"name": "by-form", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", "once": "a-key"}


def written(page: str) -> dict[str, str]:
    form = page.partition('class="job-form"')[2].partition("</form>")[0]
    inputs = {
        re.findall(r' name="([^"]*)"', each)[0]: each.partition(' value="')[2].partition('"')[0]
        for each in re.findall(r"<input[^>]*>", form)
    }
    areas = dict(re.findall(r'<textarea name="([^"]*)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL))
    chosen = {
        name: options.partition(" selected>")[2].partition("<")[0]
        for name, options in re.findall(r'<select name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL)
    }
    return {name: html.unescape(value) for name, value in {**inputs, **areas, **chosen}.items() if value}


def said(page: str) -> dict[str, str]:
    found = re.findall(r'<span class="field-error" id="([^"]*)-error">(.*?)</span>', page)
    return {field: html.unescape(re.sub("</?code>", "`", words)) for field, words in found}


async def job_of(api: Api, reply: httpx2.Response) -> Any:
    assert reply.status_code == 303, reply.text
    return await api.get(f"/v1{reply.headers['location']}")


async def jobs(database: Database) -> int:
    ((count,),) = await scene.rows(database, "SELECT count(*) FROM jobs")
    return int(str(count))


async def test_the_form_has_the_parameters_that_the_pipeline_reads_with_bounds_and_defaults(api: Api) -> None:
    page = await text(api, "/submit?pipeline=hyde")
    assert 'name="params.hyde.documents"' in page
    assert (
        "0 to 32: Number of hypothetical documents for each question; with 0 the pipeline equals <code>dense</code>."
        in page
    )
    assert 'placeholder="8"' in page
    assert 'name="params.gate.tau"' not in page
    assert "1 to 1,000" in page


async def test_defaults_are_as_the_configuration_says(api: Api) -> None:
    change = {"params": {"candidates": 17, "fusion": {"method": "weighted"}}}
    assert (await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})).status_code == 200
    page = await text(api, "/submit")
    assert re.search(r'name="params.candidates"[^>]* placeholder="17"', page)
    assert "default: weighted" in page


async def test_a_form_makes_the_job_that_the_api_would(api: Api) -> None:
    fields = {
        **SUBMIT_JOB,
        "limit": "3", "repeats": "2", "reuse": "none", "rank": "7", "metadata": "run=one\r\n two = 2 \r\n",
        "models.judge": "a-judge", "params.candidates": "5", "params.gate.tau": "0.25", "params.route.enabled": "true",
        "params.fusion.method": "weighted", "params.anchors": '{"negative": "bad"}', "params.context_size": "",
        "action": "submit",
    }  # fmt: skip
    job = await job_of(api, await send(api, "/submit", fields))
    assert (job["name"], job["limit"], job["repeats"], job["reuse"], job["rank"]) == ("by-form", 3, 2, "none", 7)
    assert job["metadata"] == {"run": "one", "two": "2"}
    params = job["params"]
    assert (params["candidates"], params["gate"]["tau"], params["route"]["enabled"]) == (5, 0.25, True)
    assert (params["fusion"]["method"], params["anchors"]) == ("weighted", {"negative": "bad"})
    assert params["context_size"] == Params().context_size
    assert api.woken == 1


async def test_a_second_click_makes_no_second_job(api: Api, database: Database) -> None:
    fields = {**SUBMIT_JOB, "action": "submit"}
    replies = await asyncio.gather(*(send(api, "/submit", fields) for _ in range(3)))
    again = await send(api, "/submit", fields)
    led = {reply.headers["location"] for reply in (*replies, again) if reply.status_code == 303}
    assert len(led) == 1
    assert again.status_code == 303
    assert await jobs(database) == 1


async def test_a_changed_form_needs_a_second_look_and_then_makes_another_job(api: Api, database: Database) -> None:
    assert (await send(api, "/submit", {**SUBMIT_JOB, "action": "submit"})).status_code == 303
    reply = await send(api, "/submit", {**SUBMIT_JOB, "name": "another", "action": "submit"})
    assert reply.status_code == 422
    assert "this form has already submitted a job" in reply.text
    kept = written(reply.text)
    assert kept["once"] != SUBMIT_JOB["once"]
    assert (await send(api, "/submit", {**kept, "action": "submit"})).status_code == 303
    assert await jobs(database) == 2


async def test_a_dry_run_says_what_it_would_cost_and_makes_nothing(api: Api, database: Database) -> None:
    reply = await send(api, "/submit", {**SUBMIT_JOB, "params.candidates": "4", "action": "dry-run"})
    assert reply.status_code == 200
    assert "Dry run: " in reply.text
    assert re.search(r'<th scope="row">generate</th><td[^>]*>5<', reply.text)
    assert {**SUBMIT_JOB, "params.candidates": "4"}.items() <= written(reply.text).items()
    assert await jobs(database) == 0


async def test_everything_that_is_wrong_is_said_at_once_beside_its_field(api: Api, database: Database) -> None:
    wrong = {
        **SUBMIT_JOB,
        "name": "no name", "repeats": "0", "rank": "x", "params.candidates": "ten", "params.gate.tau": "2",
        "params.fusion.method": "best", "params.hyde.documents": "3", "params.anchors": "{", "metadata": "loose",
    }  # fmt: skip
    reply = await send(api, "/submit", {**wrong, "action": "submit"})
    assert reply.status_code == 422
    found = said(reply.text)
    assert set(found) == set(wrong) - set(SUBMIT_JOB) | {"name"}
    assert "is not a valid name" in found["name"]
    assert "greater than or equal to 1" in found["repeats"]
    assert found["params.candidates"] == "expected `int`, got `str`"
    assert "between -1 and 1" in found["params.gate.tau"]
    assert "it is one of rrf, weighted" in found["params.fusion.method"]
    assert "mathrag-gate would not read it" in found["params.hyde.documents"]
    assert wrong.items() <= written(reply.text).items()
    assert await jobs(database) == 0


@pytest.mark.parametrize(
    ("changed", "status", "field", "words"),
    [
        ({"dataset": "item"}, 404, "dataset", "did you mean 'items'?"),
        ({"corpus": "nope"}, 404, "corpus", "no corpus 'nope'"),
        ({"corpus": ""}, 422, "corpus", "needs one"),
        ({"pipeline": "mathrag-gat"}, 422, "pipeline", "did you mean 'mathrag-gate'?"),
        ({"models.judge": "nobody"}, 422, "models.judge", "'nobody'"),
        ({"name": ""}, 422, "name", "is not a valid name"),
    ],
)
async def test_unknown_names_are_said_beside_their_fields(
    api: Api, changed: dict[str, str], status: int, field: str, words: str
) -> None:
    for action in ("submit", "dry-run"):
        reply = await send(api, "/submit", {**SUBMIT_JOB, **changed, "action": action})
        assert reply.status_code == status, reply.text
        assert words in said(reply.text)[field]


async def test_a_name_that_is_taken_is_said_beside_it(api: Api) -> None:
    await api.job(name="by-form")
    reply = await send(api, "/submit", {**SUBMIT_JOB, "action": "submit"})
    assert reply.status_code == 409
    assert "is called 'by-form' already" in said(reply.text)["name"]


@pytest.mark.parametrize("field", ["params.no.such", "params.candidates.x", "elsewhere", "models.nobody", "params."])
async def test_fields_that_there_are_not_are_refused_by_name(api: Api, database: Database, field: str) -> None:
    reply = await send(api, "/submit", {**SUBMIT_JOB, field: "1", "action": "submit"})
    assert reply.status_code == 422
    assert 'role="alert"' in reply.text
    assert await jobs(database) == 0


async def test_another_pipeline_shows_its_fields_and_keeps_what_was_written(api: Api) -> None:
    fields = {
        **SUBMIT_JOB,
        "pipeline": "hyde",
        "params.gate.tau": "0.2",
        "params.candidates": "4",
        "action": "fields",
    }
    page = (await send(api, "/submit", fields)).text
    assert 'name="params.hyde.documents"' in page
    assert "does not read these" in page
    kept = written(page)
    assert (kept["params.gate.tau"], kept["params.candidates"], kept["once"]) == ("0.2", "4", "a-key")


async def test_a_job_can_be_run_again_with_something_else(api: Api) -> None:
    first = await api.job(
        "hybrid", name="first", repeats=2, limit=3, metadata={"run": "one"}, models={"judge": "a-judge"},
        params={"candidates": 6, "fusion": {"dense": 0.9}},
    )  # fmt: skip
    page = await text(api, f"/submit?from={first['id']}&params.rrf_k=30")
    values = written(page)
    assert values.items() >= {
        "name": "first-r2", "dataset": "items", "corpus": "docs", "pipeline": "hybrid", "repeats": "2", "limit": "3",
        "metadata": "run=one", "models.judge": "a-judge", "params.candidates": "6", "params.fusion.dense": "0.9",
        "params.rrf_k": "30",
    }.items()  # fmt: skip
    again = await job_of(api, await send(api, "/submit", {**values, "action": "submit"}))
    assert again["params"] == {**first["params"], "rrf_k": 30}
    assert (await look(api, "/submit?from=nobody")).status_code == 404


async def test_hostile_values_are_texts_in_submit(api: Api) -> None:
    hostile = '\u202e"></textarea><script>alert(1)</script>'
    names = [
        *SUBMIT_JOB,
        "limit",
        "metadata",
        "models.judge",
        "params.anchors",
        "params.candidates",
        "params.x",
        "other",
    ]
    for name in names:
        for action in ("submit", "dry-run", "fields"):
            page = (await send(api, "/submit", {**SUBMIT_JOB, name: hostile, "action": action})).text
            assert "<script>" not in page, name
    reply = await send(api, "/submit", {**SUBMIT_JOB, "params.grading.rubric": "long " * 100_000, "action": "submit"})
    assert reply.status_code == 422
    assert "length <= 8000" in said(reply.text)["params.grading.rubric"]
    huge = await send(api, "/submit", {**SUBMIT_JOB, "metadata": "x" * (1 << 20), "action": "submit"})
    assert huge.status_code == 413


async def test_an_empty_service_says_how_to_begin_in_submit(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url) as bare:
        page = await text(bare, "/submit")
    assert "mathrag dataset create NAME FILE" in page
    assert "mathrag corpus create NAME FILE" in page


@pytest.mark.parametrize("scopes", [[Scope.READ], [Scope.SUBMIT]])
async def test_a_key_without_the_scopes_gets_no_form_and_is_refused(
    keyed: Api, database: Database, scopes: list[Scope]
) -> None:
    await sign_in(keyed, database, *scopes)
    page = await look(keyed, "/submit")
    assert page.status_code == 403
    assert 'class="job-form"' not in page.text
    sent: Mapping[str, str] = {**SUBMIT_JOB, "action": "submit", "csrf": token(page.text)}
    assert (await send(keyed, "/submit", sent)).status_code == 403
    assert await jobs(database) == 0


async def test_a_form_of_another_session_is_refused(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    page = await text(keyed, "/submit")
    fields = {**SUBMIT_JOB, "action": "submit"}
    for wrong in ({}, {"csrf": "x"}):
        assert (await send(keyed, "/submit", {**fields, **wrong})).status_code == 403
    assert await jobs(database) == 0
    assert (await send(keyed, "/submit", {**fields, "csrf": token(page)})).status_code == 303
    assert "by-form" in await text(keyed, "/jobs")
