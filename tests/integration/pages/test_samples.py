"""The page of a job's samples: what it lists, its filters, where it goes on, and how failed samples are asked again."""

import re

import pytest
from sqlalchemy import event

from shared.calls import Request
from shared.replies import Failure, FailureKind, Reply
from shared.shapes import Scope
from shared.storage import samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token

pytestmark = pytest.mark.anyio

PAGE = "/jobs/a-job/samples"
HOSTILE = "<script>alert(1)</script> \u202egnp.exe <img src=x onerror=alert(1)>"


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
    assert "No sample so far matches these filters" in page
    assert 'rel="next"' in page


async def test_a_job_without_samples_says_when_there_will_be_some(api: Api, database: Database) -> None:
    await api.job("mathrag-gate")
    assert "There is no sample yet" in await text(api, PAGE)


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
