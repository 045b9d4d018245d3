"""`/plan`: what a job would come to, before anything is submitted."""

import html
import re
from urllib.parse import urlencode

import pytest

from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import look, sign_in, text
from tests.integration.test_access import KEYED
from tests.integration.test_plans_api import SETTINGS, api

__all__ = ["api"]
pytestmark = pytest.mark.anyio
JOB = {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
CARD = {"models.judge": "qwen2.5-0.5b:f16", "models.generate": "qwen2.5-7b:q4_k_m"}


def plan(**values: object) -> str:
    return f"/plan?{urlencode({**JOB, **values})}"


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
    assert link == urlencode({**JOB, "repeats": 2, "params.candidates": 7})


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


async def test_hostile_values_are_texts(api: Api) -> None:
    hostile = '"><script>alert(1)</script>'
    names = ("dataset", "pipeline", "corpus", "repeats", "models.judge", "params.gate.tau", "memory", "params.x.y")
    for name in names:
        assert "<script>alert" not in (await look(api, plan(**{name: hostile}))).text, name


async def test_an_empty_service_says_how_to_begin(database: Database, redis_url: str) -> None:
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
