"""A sample's page says how its answer came about, whatever the texts hold and however it ended."""

import contextlib
import io
import re

import httpx2
import pytest

from mathrag.client.client import Client
from services.orchestrator.api.examples import make_example
from services.orchestrator.web import sample
from shared.calls import Request
from shared.replies import Failure, FailureKind, Generated, Rated, Reply
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, sign_in, text

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script> \u202egnp.exe {{ 7*7 }} <img src=x onerror=alert(1)>"
PAGE = "/jobs/a-job/samples/1"


async def drained(database: Database, answer: scene.Answer) -> None:
    await scene.drain(database, scene.ScriptedExecutor(answer))


def saying(written: str) -> scene.Answer:
    def answer(request: Request) -> Reply:
        return Generated(text=written) if request.role == "generate" else scene.by_rule(request)

    return answer


async def test_a_gated_sample_shows_its_documents_before_and_after_reranking(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", params={"quality": "judge"}, repeats=2)
    await finished(database)
    page = await text(api, f"{PAGE}?repeat=1")
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
    page = await text(api, PAGE)
    assert "8 of 14 calls" in page
    assert "3.0 grade: grader" in page
    assert "1.9 judge" not in page


async def test_right_and_wrong_are_told_at_a_glance_with_the_gold_answer(api: Api, database: Database) -> None:
    await api.job()
    await drained(database, saying("so $1+1=2$ and $1+1=3$: \\boxed{2}"))
    right, wrong = await text(api, PAGE), await text(api, "/jobs/a-job/samples/2")
    assert "✓ right" in right
    assert "✗ wrong: arithmetic" in wrong
    assert "<dt>Gold</dt><dd>4</dd>" in wrong
    assert "1 of 2 hold, 1 do not" in wrong
    assert '<span class="math">so $1+1=2$' in wrong


async def test_a_closed_book_sample_says_that_no_document_was_searched_for(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    page = await text(api, PAGE)
    assert "There was no search" in page
    assert "<svg viewBox" not in page


@pytest.mark.parametrize("pipeline", ["self-rag", "crag", "critic-loop", "enhanced", "hyde", "self-consistency"])
async def test_what_each_method_decided_is_said_in_words(api: Api, database: Database, pipeline: str) -> None:
    await api.job(pipeline)
    await finished(database)
    page = await text(api, PAGE)
    decided = page.partition("<h2>Decisions</h2>")[2].partition("</ol>")[0]
    assert decided.count("<li>") >= 1
    assert "not known" not in decided
    assert not re.search("[0-9a-f]{64}", decided)


async def test_a_sample_without_an_answer_says_why(api: Api, database: Database) -> None:
    await api.job()
    assert "It has not ended yet (ready)" in await text(api, PAGE)
    failure = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail=HOSTILE)
    await drained(database, lambda request: failure if request.role == "generate" else scene.by_rule(request))
    page = await text(api, PAGE)
    assert "<strong>Failed:</strong> context_exceeded" in page
    assert "<script>alert" not in page
    await scene.run_sql(database, "UPDATE samples SET state = 4, failure = NULL")
    assert "Cancelled before it had an answer" in await text(api, PAGE)


async def test_hostile_texts_are_shown_and_do_not_act(api: Api, database: Database) -> None:
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
    page = await text(api, PAGE)
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
    page = await text(api, PAGE)
    assert "cannot be read by this release" in page
    await plant("UPDATE outcomes SET outcome = :o", o=b'{"answer":5}')
    await scene.run_sql(database, "UPDATE jobs SET params = :p", p=b'{"gate":{"tua":0.3}}')
    page = await text(api, PAGE)
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
        (await text(api, PAGE))
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
    page = await text(keyed, PAGE)
    assert "Authorization: Bearer $MATHRAG_API_KEY" in page
    assert key not in page
