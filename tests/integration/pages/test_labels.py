"""`/labels`: sets are drawn and labelled blindly by forms, and agreement is shown; hostile texts stay texts."""

import re

import pytest

from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token
from tests.integration.test_access import KEYED, sent

pytestmark = pytest.mark.anyio
FORM = {"name": "set", "job": "a-job", "what": "documents", "size": "15", "seed": "0"}


async def drawn(api: Api, database: Database, **fields: str) -> None:
    await api.job("mathrag-gate", params={"quality": "judge"})
    await finished(database)
    reply = await send(api, "/labels", {**FORM, **fields})
    assert (reply.status_code, reply.headers["location"]) == (303, "/labels/set"), reply.text


async def label(api: Api, number: int, value: str, **fields: str) -> str:
    reply = await send(api, f"/labels/set/tasks/{number}", {"value": value, **fields})
    assert reply.status_code == 303, reply.text
    return reply.headers["location"]


async def test_without_a_set_the_page_says_how_to_draw_one(api: Api) -> None:
    page = await text(api, "/labels")
    assert "There is no label set yet" in page
    assert "mathrag label create" in page
    assert 'action="/labels"' in page


async def test_a_set_is_drawn_labelled_and_compared_without_a_script(api: Api, database: Database) -> None:
    await drawn(api, database)
    for number in range(1, 16):
        assert f"<h1>Task {number} of 15</h1>" in await text(api, "/labels/set")
        assert await label(api, number, "abstain" if number == 3 else str(number % 5 + 1)) == "/labels/set"
    assert "Everything of set is labelled" in await text(api, "/labels/set")
    page = await text(api, "/labels/set/agreement")
    assert re.search(r"People and the judge say the same of \d+ of 14 documents; weighted kappa -?\d.\d\d", page)
    assert "14 labels, 1 abstention, 0 ties" in page
    assert "Calibrated ratings of the judge" in page
    (row,) = rows(await text(api, "/labels"))
    assert "15 of 15" in row
    assert "of 14 labels" in row


async def test_a_blind_page_says_nothing_of_the_judge_s_rating(api: Api, database: Database) -> None:
    await drawn(api, database)
    blind = await text(api, "/labels/set")
    await scene.run_sql(database, "UPDATE label_tasks SET system = CASE system WHEN '1' THEN '2' ELSE '1' END")
    assert await text(api, "/labels/set") == blind
    said = await scene.scalar(database, "SELECT system FROM label_tasks WHERE number = 1")
    shown = await text(api, "/labels/set?blind=false")
    assert f"the judge said <strong>{said}</strong>" in shown
    assert 'name="blind" value="false"' in shown
    assert await label(api, 1, "2", blind="false") == "/labels/set?blind=false"
    assert await scene.rows(database, "SELECT value, blind FROM labels") == [("2", False)]
    assert "Nobody has labelled" in await text(api, "/labels/set/agreement")
    assert "the same of" in await text(api, "/labels/set/agreement?blind=false")


async def test_a_label_can_be_changed_and_has_its_note(api: Api, database: Database) -> None:
    await drawn(api, database)
    await label(api, 2, "4", note="<b>unsure</b>")
    page = await text(api, "/labels/set/tasks/2")
    assert re.search(r'value="4" data-press="4" class="primary" aria-pressed="true"', page)
    assert "&lt;b&gt;unsure&lt;/b&gt;" in page
    await label(api, 2, "5")
    assert await scene.scalar(database, "SELECT count(*) FROM labels") == 2


async def test_answers_are_shown_with_the_right_answer_and_without_the_verdict(api: Api, database: Database) -> None:
    await drawn(api, database, what="answers")
    page = await text(api, "/labels/set")
    assert [found[1] for found in re.finditer(r'data-press="(.)"', page)] == ["w", "t", "r", "a"]
    assert "Right answer" in page
    assert "✓" not in page
    await label(api, 1, "tie")


async def test_a_disagreement_leads_to_its_sample(api: Api, database: Database) -> None:
    await drawn(api, database, what="answers")
    await label(api, 1, "tie")
    item = await scene.scalar(database, "SELECT item FROM label_tasks WHERE number = 1")
    page = await text(api, "/labels/set/agreement")
    assert f'/samples/{item}"' in page
    await scene.run_sql(database, "UPDATE label_sets SET job_id = NULL")
    page = await text(api, "/labels/set/agreement")
    assert "/samples/" not in page
    assert "purged" in page


HOSTILE = "</div><script>alert(1)</script>\u202e $x^2$ " + "x" * 1_000_000


async def test_a_hostile_document_is_shown_and_does_not_act(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE documents SET body = :body", body=HOSTILE)
    await drawn(api, database)
    page = await text(api, "/labels/set")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "U+202E" in page
    assert len(page) < 1_100_000


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"name": "no/name"}, 422, "is not a valid name"),
        ({"job": "nowhere"}, 404, "no job"),
        ({"what": "jokes"}, 422, "what"),
        ({"size": "many"}, 422, "size"),
        ({"size": "0"}, 422, "size"),
    ],
)
async def test_a_set_that_cannot_be_drawn_is_refused_in_words(
    api: Api, fields: dict[str, str], status: int, said: str
) -> None:
    reply = await send(api, "/labels", {**FORM, **fields})
    assert (reply.status_code, said in reply.text) == (status, True), reply.text


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [("tasks/1", "6", 422), ("tasks/1", "", 422), ("tasks/99", "3", 404), ("tasks/0", "3", 422)],
)
async def test_a_label_that_cannot_be_used_is_refused(
    api: Api, database: Database, path: str, value: str, status: int
) -> None:
    await drawn(api, database)
    assert (await send(api, f"/labels/set/{path}", {"value": value})).status_code == status
    assert (await look(api, "/labels/none")).status_code == 404
    assert await scene.scalar(database, "SELECT count(*) FROM labels") == 0


async def test_who_may_only_read_sees_no_button_and_may_not_label(
    database: Database, redis_url: str, keyed: Api
) -> None:
    async with serving(database, redis_url) as open_api:
        await drawn(open_api, database)
    await sign_in(keyed, database, Scope.READ)
    page = await text(keyed, "/labels/set")
    assert "data-press" not in page
    assert "needs the scope submit" in page
    assert (await send(keyed, "/labels/set/tasks/1", {"value": "3", "csrf": token(page)})).status_code == 403
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    assert (await send(keyed, "/labels/set/tasks/1", {"value": "3"})).status_code == 403
    csrf = token(await text(keyed, "/labels/set"))
    assert (await send(keyed, "/labels/set/tasks/1", {"value": "3", "csrf": csrf})).status_code == 303
    assert await scene.scalar(database, "SELECT labeller FROM labels") == "read-submit"


async def test_two_labellers_have_a_majority_and_an_alpha(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    async with serving(database, redis_url) as open_api:
        await drawn(open_api, database)
    both = [await keys.create_key(database, "local", name, {Scope.READ, Scope.SUBMIT}) for name in ("ana", "ben")]
    async with serving(database, redis_url, KEYED) as api:
        for number in range(1, 13):
            for key, value in zip(both, (number % 5 + 1, min(number % 5 + 2, 5)), strict=True):
                path = f"/v1/labels/sets/set/tasks/{number}/labels"
                assert (await api.http.post(path, json={"value": value}, headers=sent(key))).status_code == 201
        page = (await api.http.get("/labels/set/agreement", headers={**sent(both[0]), "accept": "text/html"})).text
    said = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for words in ("the majority", "ana", "ben", "labellers 12", "labellers and judge 12"):
        assert words in said
