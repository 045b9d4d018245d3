"""`/submit` and `/plan`: a job by a form, and what it would come to."""

import asyncio
import html
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from shared.params import Params
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import field_errors, look, send, sign_in, text, token
from tests.integration.test_access import KEYED
from tests.integration.test_plans import SETTINGS, planning_api

__all__ = ["planning_api"]

pytestmark = pytest.mark.anyio


JOB = {"name": "by-form", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", "once": "a-key"}


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
        "0 to 32: Number of hypothetical documents for each question. With 0 the pipeline equals <code>dense</code>."
        in page
    )
    assert 'placeholder="8"' in page
    assert 'name="params.gate.tau"' not in page
    assert "1 to 1,000" in page


def labels(page: str) -> list[str]:
    return re.findall(r'<label for="([^"]*)"', page.partition('class="job-form"')[2])


def unfolded(page: str) -> list[str]:
    return re.findall(r'<details class="section" open><summary><b>(Options|Other models|Parameters|Metadata)</b>', page)


async def test_the_form_begins_with_five_fields_and_folds_the_rest(api: Api) -> None:
    page = await text(api, "/submit")
    assert labels(page)[:5] == ["pipeline", "dataset", "corpus", "models.generate", "name"]
    for field, option in (("dataset", "items"), ("corpus", "docs"), ("models.generate", "world-generator")):
        menu = page.partition(f'<select name="{field}"')[2].partition("</select>")[0]
        assert f"<option>{option}</option>" in menu
    assert unfolded(page) == []


async def test_a_fold_with_something_set_or_wrong_is_open(api: Api) -> None:
    for fields, folds in (
        ({"repeats": "1", "rank": "100", "reuse": "all", "models.generate": "a-generator"}, []),
        ({"repeats": "2"}, ["Options"]),
        ({"models.judge": "a-judge"}, ["Other models"]),
        ({"params.candidates": "5"}, ["Parameters"]),
        ({"metadata": "run=one"}, ["Metadata"]),
    ):
        assert unfolded(await text(api, f"/submit?{urlencode(fields)}")) == folds, fields
    reply = await send(api, "/submit", {**JOB, "limit": "0", "action": "submit"})
    assert unfolded(reply.text) == ["Options"]
    reply = await send(api, "/submit", {**JOB, "action": "fields"})
    assert unfolded(reply.text) == ["Parameters"]


async def test_defaults_are_as_the_configuration_says(api: Api) -> None:
    change = {"params": {"candidates": 17, "fusion": {"method": "weighted"}}}
    assert (await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})).status_code == 200
    page = await text(api, "/submit")
    assert re.search(r'name="params.candidates"[^>]* placeholder="17"', page)
    assert "default: weighted" in page


async def test_a_form_makes_the_job_that_the_api_would(api: Api) -> None:
    fields = {
        **JOB, "limit": "3", "repeats": "2", "reuse": "none", "rank": "7", "metadata": "run=one\r\n two = 2 \r\n",
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
    fields = {**JOB, "action": "submit"}
    replies = await asyncio.gather(*(send(api, "/submit", fields) for _ in range(3)))
    again = await send(api, "/submit", fields)
    led = {reply.headers["location"] for reply in (*replies, again) if reply.status_code == 303}
    assert len(led) == 1
    assert again.status_code == 303
    assert await jobs(database) == 1


async def test_a_changed_form_needs_a_second_look_and_then_makes_another_job(api: Api, database: Database) -> None:
    assert (await send(api, "/submit", {**JOB, "action": "submit"})).status_code == 303
    reply = await send(api, "/submit", {**JOB, "name": "another", "action": "submit"})
    assert reply.status_code == 422
    assert "this form has already submitted a job" in reply.text
    kept = written(reply.text)
    assert kept["once"] != JOB["once"]
    assert (await send(api, "/submit", {**kept, "action": "submit"})).status_code == 303
    assert await jobs(database) == 2


async def test_a_dry_run_says_what_it_would_cost_and_makes_nothing(api: Api, database: Database) -> None:
    reply = await send(api, "/submit", {**JOB, "params.candidates": "4", "action": "dry-run"})
    assert reply.status_code == 200
    assert "Dry run: " in reply.text
    assert re.search(r'<th scope="row">generate</th><td[^>]*>5<', reply.text)
    assert {**JOB, "params.candidates": "4"}.items() <= written(reply.text).items()
    assert await jobs(database) == 0


async def test_everything_that_is_wrong_is_said_at_once_beside_its_field(api: Api, database: Database) -> None:
    wrong = {
        **JOB, "name": "no name", "repeats": "0", "rank": "x", "params.candidates": "ten", "params.gate.tau": "2",
        "params.fusion.method": "best", "params.hyde.documents": "3", "params.anchors": "{", "metadata": "loose",
    }  # fmt: skip
    reply = await send(api, "/submit", {**wrong, "action": "submit"})
    assert reply.status_code == 422
    found = field_errors(reply.text)
    assert set(found) == set(wrong) - set(JOB) | {"name"}
    assert "is not a valid name" in found["name"]
    assert "greater than or equal to 1" in found["repeats"]
    assert found["params.candidates"].startswith('must be a whole number between 1 and 1000, not "ten"')
    assert "between -1 and 1" in found["params.gate.tau"]
    assert "choose one of rrf, weighted" in found["params.fusion.method"]
    assert "mathrag-gate would not read it" in found["params.hyde.documents"]
    assert wrong.items() <= written(reply.text).items()
    assert await jobs(database) == 0


async def test_unknown_names_are_said_beside_their_fields(api: Api, subtests: pytest.Subtests) -> None:
    for changed, status, field, words in (
        ({"dataset": "item"}, 404, "dataset", "did you mean 'items'?"),
        ({"corpus": "nope"}, 404, "corpus", "no corpus 'nope'"),
        ({"corpus": ""}, 422, "corpus", "needs one"),
        ({"pipeline": "mathrag-gat"}, 422, "pipeline", "did you mean 'mathrag-gate'?"),
        ({"models.judge": "nobody"}, 422, "models.judge", "'nobody'"),
        ({"name": ""}, 422, "name", "is not a valid name"),
    ):
        with subtests.test(changed=changed):
            for action in ("submit", "dry-run"):
                reply = await send(api, "/submit", {**JOB, **changed, "action": action})
                assert reply.status_code == status, reply.text
                assert words in field_errors(reply.text)[field]


async def test_a_name_that_is_taken_is_said_beside_it(api: Api) -> None:
    await api.job(name="by-form")
    reply = await send(api, "/submit", {**JOB, "action": "submit"})
    assert reply.status_code == 409
    assert "'by-form' is already the name of job" in field_errors(reply.text)["name"]


async def test_fields_that_there_are_not_are_refused_by_name(
    api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    for field in ("params.no.such", "params.candidates.x", "elsewhere", "models.nobody", "params."):
        with subtests.test(field=field):
            reply = await send(api, "/submit", {**JOB, field: "1", "action": "submit"})
            assert reply.status_code == 422
            assert 'role="alert"' in reply.text
            assert await jobs(database) == 0


async def test_another_pipeline_shows_its_fields_and_keeps_what_was_written(api: Api) -> None:
    fields = {**JOB, "pipeline": "hyde", "params.gate.tau": "0.2", "params.candidates": "4", "action": "fields"}
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


async def test_hostile_values_are_texts(api: Api) -> None:
    hostile = '\u202e"></textarea><script>alert(1)</script>'
    names = [*JOB, "limit", "metadata", "models.judge", "params.anchors", "params.candidates", "params.x", "other"]
    for name in names:
        for action in ("submit", "dry-run", "fields"):
            page = (await send(api, "/submit", {**JOB, name: hostile, "action": action})).text
            assert "<script>" not in page, name
    reply = await send(api, "/submit", {**JOB, "params.grading.rubric": "long " * 100_000, "action": "submit"})
    assert reply.status_code == 422
    assert "a text of at most 8000 characters" in field_errors(reply.text)["params.grading.rubric"]
    huge = await send(api, "/submit", {**JOB, "metadata": "x" * (1 << 20), "action": "submit"})
    assert huge.status_code == 413


async def test_an_empty_service_says_how_to_begin(empty_api: Api) -> None:
    page = await text(empty_api, "/submit")
    assert "mathrag dataset create NAME --from FILE" in page
    assert "mathrag corpus create NAME --from FILE" in page


@pytest.mark.parametrize("scopes", [[Scope.READ], [Scope.SUBMIT]])
async def test_a_key_without_the_scopes_gets_no_form_and_is_refused(
    keyed: Api, database: Database, scopes: list[Scope]
) -> None:
    await sign_in(keyed, database, *scopes)
    page = await look(keyed, "/submit")
    assert page.status_code == 403
    assert 'class="job-form"' not in page.text
    sent: Mapping[str, str] = {**JOB, "action": "submit", "csrf": token(page.text)}
    assert (await send(keyed, "/submit", sent)).status_code == 403
    assert await jobs(database) == 0


async def test_a_form_of_another_session_is_refused(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    page = await text(keyed, "/submit")
    fields = {**JOB, "action": "submit"}
    for wrong in ({}, {"csrf": "x"}):
        assert (await send(keyed, "/submit", {**fields, **wrong})).status_code == 403
    assert await jobs(database) == 0
    assert (await send(keyed, "/submit", {**fields, "csrf": token(page)})).status_code == 303
    assert "by-form" in await text(keyed, "/jobs")


# `/plan`: what a job would come to, before anything is submitted.

PLANNED_JOB = {"dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate"}
CARD = {"models.judge": "qwen2.5-0.5b:f16", "models.generate": "qwen2.5-7b:q4_k_m"}


def plan(**values: object) -> str:
    return f"/plan?{urlencode({**PLANNED_JOB, **values})}"


def heading(page: str) -> str:
    return html.unescape(page.partition("<h1>")[2].partition("</h1>")[0])


def value(page: str, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
    assert found is not None, name
    return html.unescape(found[0].partition('value="')[2].partition('"')[0])


async def test_the_headline_says_whether_it_fits_and_what_it_costs(planning_api: Api) -> None:
    page = await text(planning_api, plan())
    assert heading(page).startswith("Fits 160 MiB with 2 loads, ")
    assert 'aria-label="a-judge ×4 96 MiB; budget 160 MiB"' in page
    assert re.search(r'<th scope="row">generate</th><td[^>]*>6<', page)
    assert "192 MiB (a-judge 96 with slots: 4, a-generator 96 with slots: 4) of 160 on cpu:0" in page


async def test_what_cannot_fit_says_what_to_change_and_links_to_it(planning_api: Api) -> None:
    page = await text(planning_api, plan(memory=50))
    assert heading(page) == "Does not fit 50 MiB"
    assert "fits nowhere" in page
    assert "46 MiB too much" in page
    assert "Submit this" not in page
    link = html.unescape(re.findall(r'<a href="(/plan\?[^"]*)">Plan with 192 MiB</a>', page)[0])
    assert heading(await text(planning_api, link)).startswith("Fits 192 MiB with 2 loads")


async def test_slider_and_number_are_one_value_without_a_script(planning_api: Api, subtests: pytest.Subtests) -> None:
    for sent, planned in (
        ({"memory": "200", "card": "160", "was": "160"}, "200"),
        ({"memory": "160", "card": "300.4", "was": "160"}, "300"),
        ({"memory": "170", "card": "300", "was": "160"}, "170"),
        ({"memory": "160", "card": "160", "was": "160"}, "160"),
        ({"memory": "lots", "card": "x", "was": "nan"}, "160"),
    ):
        with subtests.test(sent=sent):
            page = await text(planning_api, plan(**sent))
            assert (value(page, "memory"), value(page, "card"), value(page, "was")) == (planned,) * 3


async def test_models_that_are_not_there_are_planned_for_a_card(planning_api: Api) -> None:
    page = await text(planning_api, plan(dataset="", questions=500, **CARD))
    assert heading(page).startswith("Fits 12,288 MiB with 2 loads")
    assert "Memory of gpu:0" in page
    assert "qwen2.5-0.5b f16" in page


async def test_another_device_has_another_memory(planning_api: Api) -> None:
    page = await text(planning_api, plan(memory=160, card=160, was=160, device="cpu:0", **CARD))
    assert value(page, "memory") == "12288"
    back = await text(planning_api, plan(memory=12288, card=12288, was=12288, device="gpu:0"))
    assert value(back, "memory") == "160"


async def test_submit_has_the_same_values_but_for_what_is_not_there(planning_api: Api) -> None:
    page = await text(planning_api, plan(repeats=2, memory=9000, **{"params.candidates": 7, **CARD}))
    link = html.unescape(page.partition('href="/submit?')[2].partition('"')[0])
    assert link == urlencode({**PLANNED_JOB, "repeats": 2, "params.candidates": 7})


async def test_bad_values_are_said_with_the_apis_words(planning_api: Api, subtests: pytest.Subtests) -> None:
    for values, status, words in (
        ({"dataset": "nope"}, 404, "no dataset 'nope'"),
        ({"corpus": "nope"}, 404, "no corpus 'nope'"),
        ({"pipeline": "mathrag-gat"}, 422, "did you mean 'mathrag-gate'?"),
        ({"repeats": "0"}, 422, "greater than or equal to 1"),
        ({"dataset": ""}, 422, "exactly one of `job.dataset` and `questions`"),
        ({"questions": "3"}, 422, "exactly one of `job.dataset` and `questions`"),
        ({"memory": "0"}, 422, "greater than 0"),
        ({"models.judge": "nobody"}, 422, "'nobody'"),
        ({"models.nobody": "a-judge"}, 422, "no role 'nobody'"),
        ({"params.gate.tau": "2"}, 422, "must be between -1 and 1"),
        ({"params.hyde.documents": "2"}, 422, "mathrag-gate would not read it"),
        ({"corpus": ""}, 422, "needs one"),
    ):
        with subtests.test(values=values):
            reply = await look(planning_api, plan(**values))
            assert reply.status_code == status, reply.text
            assert words in html.unescape(re.sub("</?code>", "`", reply.text))
            assert heading(reply.text) == "Plan"


async def test_hostile_values_of_a_plan_are_texts(planning_api: Api) -> None:
    hostile = '"><script>alert(1)</script>'
    names = ("dataset", "pipeline", "corpus", "repeats", "models.judge", "params.gate.tau", "memory", "params.x.y")
    for name in names:
        assert "<script>alert" not in (await look(planning_api, plan(**{name: hostile}))).text, name


async def test_an_empty_service_says_how_to_begin_a_plan(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url, SETTINGS) as bare:
        page = await text(bare, "/plan")
    assert "mathrag dataset create NAME --from FILE" in page


async def test_planning_needs_the_scope_read_and_submitting_more(database: Database, redis_url: str) -> None:
    await scene.furnish(database, 2)
    async with serving(database, redis_url, KEYED) as keyed:
        assert (await look(keyed, plan())).status_code == 303
        await sign_in(keyed, database, Scope.READ)
        assert "Submit this" not in await text(keyed, plan())
        await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
        assert "Submit this" in await text(keyed, plan())
