"""Samples as pages: those of a job, and one of them."""

import contextlib
import io
import re

import httpx2
import pytest
from sqlalchemy import event

from mathrag.client.client import Client
from services.orchestrator.api.examples import make_example
from services.orchestrator.web import sample
from shared.calls import Request
from shared.replies import Failure, FailureKind, Generated, Rated, Reply
from shared.shapes import Scope
from shared.storage import samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token

pytestmark = pytest.mark.anyio


PAGE = "/jobs/a-job/samples"
HOSTILE = "<script>alert(1)</script> \u202egnp.exe {{ 7*7 }} <img src=x onerror=alert(1)>"


def failing(request: Request) -> Reply:
    if request.role == "generate" and " 2 plus" in str(request.values["question"]):
        return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long")
    return scene.by_rule(request)


async def test_a_row_says_question_answer_gold_and_ending(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE items SET subject = 'Algebra', level = '3' WHERE ordinal = 1")
    await api.job(repeats=2)
    await finished(database)
    page = await text(api, PAGE)
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
    page = await text(api, f"{PAGE}?subject=Algebra&limit=1&state=&text=")
    assert len(rows(page)) == 1
    assert '<option value="Algebra" selected>' in page
    assert '/samples?subject=Algebra&amp;limit=1"' in page
    further = re.search(r'href="([^"]+)" rel="next"', page)[1].replace("&amp;", "&")  # type: ignore[index]
    second = await text(api, further)
    assert "subject=Algebra" in further
    assert rows(second) != rows(page)
    assert 'rel="prev"' in second
    assert rows(await text(api, f"{PAGE}?state=failed")) == ["2 What is 2 plus 2? Algebra none gold 4 failed"]
    assert len(rows(await text(api, f"{PAGE}?correct=false"))) + len(rows(await text(api, f"{PAGE}?correct=true"))) == 4


async def test_where_nothing_is_found_the_page_says_whether_to_look_on(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.job()
    assert "There is no sample like that" not in await text(api, PAGE)
    await finished(database)
    assert "No sample matches these filters" in await text(api, f"{PAGE}?text=nowhere")
    monkeypatch.setattr(samples, "WINDOW", 2)
    page = await text(api, f"{PAGE}?text=nowhere")
    assert "None of the samples searched so far matches these filters" in page
    assert 'rel="next"' in page


async def test_a_job_without_samples_says_when_there_will_be_some(api: Api, database: Database) -> None:
    await api.job("mathrag-gate")
    assert "No sample exists yet" in await text(api, PAGE)


async def test_failed_samples_are_asked_again_as_a_new_job(keyed: Api, database: Database) -> None:
    await scene.submit_job(database, "closed-book")
    await scene.drain(database, scene.ScriptedExecutor(failing))
    await sign_in(keyed, database, Scope.READ)
    page = await text(keyed, PAGE)
    assert "1 failed" in page
    assert "Requeue" not in page
    refused = await send(keyed, "/jobs/a-job/requeue", {"csrf": token(page)})
    assert refused.status_code == 403
    keyed.http.cookies.clear()
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    page = await text(keyed, PAGE)
    assert "Requeue the 1 failed" in page
    reply = await send(keyed, "/jobs/a-job/requeue", {"csrf": token(page)})
    assert reply.status_code == 303
    assert "a-job-r2" in await text(keyed, f"{reply.headers['location']}/samples")


async def test_hostile_texts_are_shown_and_do_not_act(api: Api, database: Database, plant: Plant) -> None:
    await scene.run_sql(
        database,
        "UPDATE items SET question = :h || repeat('x', 1000000), gold = :h, subject = :h, level = :h",
        h=HOSTILE,
    )
    await api.job()
    await finished(database)
    page = await text(api, f"{PAGE}?text=%3Cscript%3E")
    assert len(rows(page)) == 5
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", page)
    assert len(page) < 60_000
    await plant("UPDATE outcomes SET outcome = :o", o=b'{"answer":5}')
    assert len(rows(await text(api, PAGE))) == 5


@pytest.mark.parametrize(
    ("query", "status"), [("state=asleep", 422), ("cursor=x", 400), ("limit=9999", 422), ("colour=red", 422)]
)
async def test_a_filter_that_cannot_be_used_is_said_to_be_so(api: Api, query: str, status: int) -> None:
    await api.job()
    reply = await look(api, f"{PAGE}?{query}")
    assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert (await look(api, "/jobs/nobody/samples")).status_code == 404


async def test_a_page_costs_as_many_statements_however_many_samples_it_lists(api: Api, database: Database) -> None:
    await api.job(repeats=20)
    await finished(database)
    counted = []
    for limit in (1, 100):
        await text(api, f"{PAGE}?limit={limit}")  # the subjects are kept
        counted.append(await statements(api, database, f"{PAGE}?limit={limit}"))
    assert counted[0] == counted[1] <= 10


async def statements(api: Api, database: Database, path: str) -> int:
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    await text(api, path)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    return len(sent)


# A sample's page says how its answer came about, whatever the texts hold and however it ended.

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
    assert "No search was made" in page
    assert "<svg viewBox" not in page


@pytest.mark.parametrize(
    "pipeline", ["self-rag", "crag", "critic-loop", "enhanced", "hyde", "program-aided", "self-consistency"]
)
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
    failure = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail=HOSTILE)
    await drained(database, lambda request: failure if request.role == "generate" else scene.by_rule(request))
    page = await text(api, SAMPLE_PAGE)
    assert "<strong>Failed:</strong> context_exceeded" in page
    assert "<script>alert" not in page
    await scene.run_sql(database, "UPDATE samples SET state = 4, failure = NULL")
    assert "Cancelled before it had an answer" in await text(api, SAMPLE_PAGE)


async def test_hostile_texts_of_a_sample_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE items SET question = :h, gold = :h, subject = :h, custom_id = :h", h=HOSTILE)
    await api.job("mathrag-gate", params={"quality": "judge"})
    long = HOSTILE + "x" * 1_000_000

    def answer(request: Request) -> Reply:
        match request.role:
            case "judge":
                return Rated(rating=3, text=HOSTILE)
            case "generate":
                return Generated(text=f"{long} \\boxed{{{HOSTILE}}}")
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


async def test_a_sample_that_is_not_there_is_said_to_be_so(api: Api, subtests: pytest.Subtests) -> None:
    await api.job()
    for path, status in (
        ("/jobs/a-job/samples/99", 404),
        ("/jobs/nobody/samples/0", 404),
        ("/jobs/a-job/samples/x", 422),
        ("/jobs/a-job/samples/0?repeat=x", 422),
        ("/jobs/a-job/samples/0?repeat=7", 404),
    ):
        with subtests.test(path=path):
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
        return httpx2.Response(200, json=make_example("Provenance", text="so"))

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
