"""Pages about the service: audits, configurations, readiness, experiments, labels, the first page, models."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text as sqlalchemy_text

from services.orchestrator.web import configuration, find
from services.orchestrator.web.job import write_audit_headline
from shared.audit import Violation, list_invariants
from shared.lease import learned_memory, residencies
from shared.settings import MODELS as SHIPPED
from shared.settings import Elasticsearch, Model, Retrieval
from shared.shapes import Scope
from shared.storage import devices, jobs, keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.pages import browsing
from tests.integration.pages.browsing import look, next_page, rows, send, sign_in, text, token
from tests.integration.test_access import KEYED, sent
from tests.integration.test_chat_api import answering, no_pause
from tests.integration.test_comparison import right
from tests.integration.test_experiments import PAIR, WEIGHTS, submitted

pytestmark = pytest.mark.anyio


# The audit of a job as a page: the verdict, what was checked, what was found and where.


async def test_a_clean_job_is_said_to_be_clean_with_all_that_was_checked(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    page = await text(api, "/jobs/a-job/audit")
    assert "<h1>Clean: the rows satisfy every invariant</h1>" in page
    assert page.count("✓ holds") == len(list_invariants()) == 16
    assert "No two residencies of a device that the job used overlap in time" in page
    assert "mathrag audit a-job" in page


async def test_a_violation_is_a_row_with_its_samples(api: Api, database: Database, plant: Plant) -> None:
    job = await api.job("closed-book")
    await finished(database)
    await plant("UPDATE outcomes SET answer = '<script>', correct = true")
    found = (await api.get("/v1/jobs/a-job/audit"))["violations"]
    page = await text(api, "/jobs/a-job/audit")
    assert len(rows(page)) == len(found) > 0
    broken = " and ".join(sorted({each["invariant"] for each in found}))
    assert f"violations: {broken}</h1>" in page or f"violation: {broken}</h1>" in page
    assert f'href="/jobs/{job["id"]}/samples/0"' in page
    assert "<script>alert" not in page
    assert page.count("✗") == len({each["invariant"] for each in found})


async def test_a_job_that_runs_is_audited_as_far_as_it_is(api: Api) -> None:
    await api.job("closed-book")
    assert "has not ended" in await text(api, "/jobs/a-job/audit")
    assert (await look(api, "/jobs/other/audit")).status_code == 404


async def test_an_unreadable_job_is_not_called_clean(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET params = '[1]'")
    page = await text(api, "/jobs/a-job/audit")
    assert "Clean" not in page
    assert "cannot be read by this release" in page or "could not be checked" in page


def test_the_headline_tells_violations_from_a_changed_pipeline() -> None:
    broken = Violation(invariant="I13", message="m", rows=("samples 1",))
    unreplayed = Violation(invariant="I18", message="m", rows=("samples 1",), source_changed=True)
    other = Violation(invariant="I2", message="m", rows=("attempts 1",))
    assert write_audit_headline([broken, other]) == "2 violations: I2 and I13"
    assert write_audit_headline([unreplayed]) == "1 outcome could not be replayed: the pipeline has changed"
    assert write_audit_headline([broken, unreplayed]).startswith("1 violation: I13; 1 outcome ")


# The configuration: what holds, every version, what two differ in, and who may change it; settings without secrets.

CONFIGURATION_HOSTILE = "<script>alert(1)</script>\u202e"


async def change(api: Api, **params: Any) -> None:
    reply = await api.http.patch("/v1/configuration", json={"params": params}, headers={"If-Match": "*"})
    assert reply.status_code == 200, reply.text


async def test_before_the_first_change_the_page_says_how_to_make_one(api: Api) -> None:
    page = await text(api, "/configuration")
    assert "No parameter has been changed" in page
    assert "mathrag config set gate.tau=0.3" in page
    assert rows(page) == []


async def test_the_page_shows_what_holds_and_every_change(api: Api) -> None:
    await change(api, gate={"tau": 0.3}, candidates=7)
    await change(api, gate={"tau": 0.4}, candidates=None)
    page = await text(api, "/configuration")
    held, second, first = rows(page)
    assert held == "gate.tau 0.4 0.45"
    assert second.startswith("2 current")
    assert "local candidates : 7 removed gate.tau : 0.3 → 0.4" in second
    assert "local candidates : 7 gate.tau : 0.3" in first


async def test_two_versions_are_compared(api: Api) -> None:
    await change(api, gate={"tau": 0.3}, seed=1)
    await change(api, gate={"tau": 0.4}, seed=None)
    page = await text(api, "/configuration?left=1&right=2")
    assert rows(page)[:2] == ["gate.tau 0.3 0.4", "seed 1 not set: 0 by default"]
    assert "/v1/configuration/differences?left=1&amp;right=2" in page
    found = await api.get("/v1/configuration/differences", left=1, right=2)
    assert [(each["name"], each["change"]) for each in found["differences"]] == [
        ("gate.tau", "changed"), ("seed", "removed"),
    ]  # fmt: skip
    assert "From shipped defaults to version 2" in await text(api, "/configuration?left=0")
    assert "Both versions have the same parameters" in await text(api, "/configuration?left=2&right=2")


@pytest.mark.parametrize(("query", "status"), [("left=9", 404), ("left=-1", 422), ("left=x", 422), ("up=1", 422),
                                               ("left=99999999999", 422), ("cursor=x", 400)])  # fmt: skip
async def test_a_version_that_does_not_exist_is_said_to_be_none(api: Api, query: str, status: int) -> None:
    assert (await look(api, f"/configuration?{query}")).status_code == status


async def test_older_versions_are_on_further_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "ROWS", 2)
    for seed in range(1, 6):
        await change(api, seed=seed)
    path: str | None = "/configuration"
    seen = []
    while path:
        page = await text(api, path)
        seen += [row.split()[0] for row in rows(page) if "seed : " in row]
        path = next_page(page)
    assert seen == ["5", "4", "3", "2", "1"]


async def test_a_form_sets_a_parameter_and_takes_it_away(api: Api) -> None:
    for name, value in (("gate.tau", "0.3"), ("fusion.method", "weighted"), ("gate.tau", "")):
        seen = (await api.get("/v1/configuration"))["version"]
        reply = await send(api, "/configuration/change", {"name": name, "value": value, "seen": str(seen)})
        assert (reply.status_code, reply.headers["location"]) == (303, "/configuration")
    assert (await api.get("/v1/configuration"))["params"] == {"fusion": {"method": "weighted"}}


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"name": "gate.tao", "value": "0.3", "seen": "0"}, 422, "no such field"),
        ({"name": "gate.tau", "value": "high", "seen": "0"}, 422, "params.gate.tau"),
        ({"name": "gate.tau", "value": "0.3", "seen": "7"}, 412, "version 0"),
        ({"name": ".".join("a" * 90), "value": "1", "seen": "0"}, 422, "no such field"),
        ({"name": "gate.tau", "value": "0.3"}, 422, "seen"),
    ],
)
async def test_a_form_that_cannot_be_used_changes_nothing(
    api: Api, fields: dict[str, str], status: int, said: str
) -> None:
    reply = await send(api, "/configuration/change", fields)
    assert reply.status_code == status, reply.text
    assert said in reply.text
    assert (await api.get("/v1/configuration"))["version"] == 0


async def test_an_older_version_is_restored_as_a_new_one(api: Api) -> None:
    await change(api, seed=1)
    await change(api, seed=2)
    assert (await send(api, "/configuration/restore", {"version": "1", "seen": "2"})).status_code == 303
    assert (await api.get("/v1/configuration"))["params"] == {"seed": 1}
    assert (await send(api, "/configuration/restore", {"version": "0", "seen": "3"})).status_code == 303
    assert await api.get("/v1/configuration") | {"changed_at": ""} == {
        "version": 4, "params": {}, "changed_by": "local", "changed_at": "",
    }  # fmt: skip
    assert (await send(api, "/configuration/restore", {"version": "9", "seen": "4"})).status_code == 404


async def test_the_api_restores_too_and_asks_what_was_seen(api: Api) -> None:
    await change(api, seed=1)
    path, body = "/v1/configuration/restore", {"version": 0}
    assert (await api.http.post(path, json=body)).status_code == 428
    old = {"If-Match": '"0-0000000000000000"'}
    assert (await api.http.post(path, json=body, headers=old)).status_code == 412
    tag = (await api.http.get("/v1/configuration")).headers["etag"]
    reply = await api.http.post(path, json=body, headers={"If-Match": tag})
    assert (reply.json()["version"], reply.json()["params"]) == (2, {})


async def test_only_operators_see_settings_and_change_anything(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ)
    page = await text(keyed, "/configuration")
    assert "/configuration/change" not in page
    assert "Only operators can see the settings" in page
    assert "data_dir" not in page
    fields = {"name": "seed", "value": "1", "seen": "0", "csrf": token(page)}
    assert (await send(keyed, "/configuration/change", fields)).status_code == 403
    assert (await send(keyed, "/configuration/restore", {"version": "0", "seen": "0", **fields})).status_code == 403
    assert (await keyed.http.get("/v1/settings")).status_code == 403


async def test_a_change_needs_the_token_of_its_session(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    page = await text(keyed, "/configuration")
    fields = {"name": "seed", "value": "1", "seen": "0"}
    assert (await send(keyed, "/configuration/change", fields)).status_code == 403
    assert (await send(keyed, "/configuration/change", {**fields, "csrf": token(page)})).status_code == 303
    assert (await keyed.http.get("/v1/configuration")).json()["changed_by"] == "operate"


async def test_no_secret_stands_on_the_page_or_in_the_api(database: Database, redis_url: str) -> None:
    secret = "hidden-5f2d"
    settings = scene.SETTINGS.model_copy(
        update={
            "service_key": secret,
            "database_url": f"postgresql+asyncpg://app:{secret}@db/mathrag",
            "redis_url": f"redis://:{secret}@redis:6379/0",
            "retriever_url": f"http://user:{secret}@retriever",
            "retrieval": Retrieval(elasticsearch=Elasticsearch(url=f"https://e:{secret}@es:9200", api_key=secret)),
            "models": {
                "big": Model(driver="process", server="vllm", hub="a/b", command=("vllm", "--api-key", secret)),
            },
        }
    )
    async with serving(database, redis_url, settings) as api:
        for path in ("/configuration", "/v1/settings"):
            reply = await look(api, path)
            assert reply.status_code == 200
            assert secret not in reply.text, path
        found = {each["name"]: each for each in await api.get("/v1/settings")}
        assert found["service_key"] | {"meaning": ""} == {
            "name": "service_key", "value": "***", "default": "", "changed": True, "meaning": "",
        }  # fmt: skip
        assert found["models.big.command"]["value"] == ["vllm", "***"]
        assert (found["device.budget_mib"]["changed"], found["device.budget_mib"]["value"]) == (False, 160)


async def test_hostile_values_are_shown_and_do_not_act(api: Api) -> None:
    await change(
        api,
        anchors={"negative": CONFIGURATION_HOSTILE},
        enhance={"terms": {CONFIGURATION_HOSTILE: [CONFIGURATION_HOSTILE]}},
    )
    await change(api, anchors={"negative": "harmless"})
    for path in ("/configuration", "/configuration?left=0&right=1"):
        page = await text(api, path)
        assert "<script>alert" not in page
        assert "U+202E" in page


# Whether jobs can run, as a page.


async def test_what_is_not_well_stands_first_with_what_to_do(api: Api) -> None:
    page = await browsing.text(api, "/doctor")
    found = browsing.rows(page)
    wrong = [row for row in found if row.startswith("✗")]
    assert f"<h1>{len(wrong)} of {len(found)} checks need attention</h1>" in page
    assert found[: len(wrong)] == wrong
    assert any(row.startswith("✗ judge worker") and "start" in row for row in wrong)
    assert any(row.startswith("✓ postgres") for row in found)


async def test_everything_is_looked_at_for_operators_alone(keyed: Api, database: Database) -> None:
    await browsing.sign_in(keyed, database, Scope.READ)
    assert "/doctor/everything" not in await browsing.text(keyed, "/doctor")
    assert (await browsing.look(keyed, "/doctor/everything")).status_code == 403
    await browsing.sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    assert len(browsing.rows(await browsing.text(keyed, "/doctor/everything"))) > len(
        browsing.rows(await browsing.text(keyed, "/doctor"))
    )


# Experiments as pages: what they found, grids with missing cells, and states.

EXPERIMENTS_HOSTILE = {
    **PAIR, "name": "hostile", "grid": {"enhance.terms.<script>\u202e": [["<b>1</b>"], ["<b>2</b>"]]},
    "variants": [{"name": "enhanced", "pipeline": "enhanced"}], "baseline": None,
}  # fmt: skip


async def test_without_an_experiment_the_page_says_how_to_submit_one(api: Api) -> None:
    assert "mathrag experiment run" in await text(api, "/experiments")


async def test_experiments_are_listed_with_their_state(api: Api, database: Database) -> None:
    await submitted(api)
    await finished(database)
    await submitted(api, {**PAIR, "name": "young", "repeats": 2})
    page = await text(api, "/experiments?limit=1")
    assert [row.split(" ")[:2] for row in rows(page)] == [["young", "running"]]
    (following,) = re.findall(r'href="([^"]+)" rel="next"', page)
    assert [row.split(" ")[0] for row in rows(await text(api, following.replace("&amp;", "&")))] == ["pair"]


async def test_the_headline_is_the_verdict_of_the_report(api: Api, database: Database, plant: Plant) -> None:
    await submitted(api)
    await finished(database)
    await right(plant, "pair-closed-1", [0])
    await right(plant, "pair-dense-2", [0, 1, 2])
    page = await text(api, "/experiments/pair")
    assert "<h1>No variant beats closed at n = 5; dense leads by 40 points, not separable</h1>" in page
    assert rows(page)[0].startswith("dense 60.0 %")
    assert rows(page)[1].startswith("closed (baseline) 20.0 %")
    found = await api.get("/v1/experiments/pair/report")
    assert f"<h1>{found['comparisons']['pooled']['finding']}</h1>" in page
    assert f'href="/v1/experiments/{found["id"]}/report"' in page


async def test_two_parameters_are_a_heat_map_whose_cells_lead_to_jobs(api: Api, database: Database) -> None:
    made = await submitted(api, WEIGHTS)
    await finished(database)
    page = await text(api, "/experiments/weights")
    cells = re.findall(r'<td class="(heat-\d|missing)">(.*?)</td>', page)
    assert len(cells) == 9
    assert [words for kind, words in cells if kind == "missing"] == ["refused"]
    assert {cell["job"] for cell in made["grid"] if cell["job"]} == set(re.findall(r'href="/jobs/([\w-]+)">\d', page))
    assert "4 cells share" in page or "3 cells share" in page


async def test_axes_are_chosen(api: Api, database: Database) -> None:
    await submitted(api, WEIGHTS)
    await finished(database)
    page = await text(api, "/experiments/weights?x=rrf_weight&y=none")
    assert page.count('role="img"') == 3
    assert "heat-" not in page
    for wrong in ("x=variant", "y=beauty", "x=rrf_weight&y=rrf_weight", "z=1", "measure=beauty"):
        assert (await look(api, f"/experiments/weights?{wrong}")).status_code == 422, wrong


async def test_one_that_still_runs_shows_what_is_done(api: Api) -> None:
    await submitted(api, {**PAIR, "grid": {"context_size": [1, 2], "candidates": [2, 3]}})
    page = await text(api, "/experiments/pair?x=context_size&y=candidates")
    assert "<h1>Nothing can be compared yet" in page
    assert "0 of 25 samples done" in page
    assert ">running<" in page
    assert "reload" in page


async def test_hostile_parameters_do_not_act(api: Api, database: Database) -> None:
    await submitted(api, EXPERIMENTS_HOSTILE)
    await finished(database)
    page = await text(api, "/experiments/hostile")
    assert "&lt;b&gt;1" in page
    assert "U+202E" in page
    assert "<b>1" not in page
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", page)  # a form sends it back as it is
    assert (await look(api, "/experiments/%3Cscript%3E%E2%80%AE")).status_code == 404


@pytest.mark.parametrize("name", ["nowhere", "%3Cscript%3E", "%00"])
async def test_an_unknown_experiment_is_a_page_that_says_so(api: Api, name: str) -> None:
    reply = await look(api, f"/experiments/{name}")
    assert reply.status_code in (404, 422)
    assert "<script>" not in reply.text


# `/labels`: sets are drawn and labelled blindly by forms, and agreement is shown; hostile texts stay texts.

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
    assert "No label set exists yet" in page
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
    assert "None of the documents has been labelled" in await text(api, "/labels/set/agreement")
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


LABELS_HOSTILE = "</div><script>alert(1)</script>\u202e $x^2$ " + "x" * 1_000_000


async def test_a_hostile_document_is_shown_and_does_not_act(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE documents SET body = :body", body=LABELS_HOSTILE)
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
    database: Database, empty_api: Api, keyed: Api
) -> None:
    await drawn(empty_api, database)
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


# The first page: the newest results, or what the first one needs.


def steps_done(page: str) -> dict[str, bool]:
    found = re.findall(r'<li class="card( done)?"><h2>.*?<a href="[^"]*">(\w+)</a>', page)
    return {name: bool(done) for done, name in found}


async def test_the_first_page_ticks_the_steps_to_a_first_result(empty_api: Api, database: Database) -> None:
    assert steps_done(await text(empty_api, "/")) == {
        "Model": True, "Documents": False, "Questions": False, "Run": False,
    }  # fmt: skip
    await scene.furnish(database)
    await empty_api.job("dense")
    page = await text(empty_api, "/")
    assert all(steps_done(page).values())
    assert re.search(r'<h2>Running jobs</h2>\s*<ul class="plain"><li><a href="/jobs/[^"]*">a-job</a>', page)


async def test_the_first_page_shows_the_newest_results(api: Api, database: Database) -> None:
    for name in ("older", "newer"):
        await api.job("dense", name=name)
    await finished(database)
    page = await text(api, "/")
    assert steps_done(page) == {}
    assert [row.split()[0] for row in rows(page)] == ["newer", "older"]
    assert re.search(r"^newer [\d.]+ % \(", rows(page)[0])
    assert "Running jobs" not in page
    await scene.run_sql(database, "UPDATE jobs SET pipeline = 'mine-rules' WHERE name = 'newer'")
    assert [row.split()[0] for row in rows(await text(api, "/"))] == ["older"], "mined rules are no result"


async def test_the_navigation_has_what_a_key_allows(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ)
    reader = re.findall(r'<li><a href="(/[a-z]+)"', await text(keyed, "/"))
    await sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    operator = re.findall(r'<li><a href="(/[a-z]+)"', await text(keyed, "/"))
    assert set(operator) - set(reader) == {"/submit", "/keys"}
    assert operator[: len(operator) // 2] == operator[len(operator) // 2 :], "the menu of phones has the same links"


# The search box of every page.


def hits(page: str) -> dict[str, list[str]]:
    parts = re.findall(r"<h2>(.*?)</h2>\s*<ul class=\"plain\">(.*?)</ul>", page, re.DOTALL)
    return {kind: re.findall(r'<a href="[^"]*">(.*?)</a>', found) for kind, found in parts}


async def test_the_search_box_finds_jobs_samples_collections_pages_and_parameters(api: Api, database: Database) -> None:
    for name in ("first-ITEM", "second"):
        await api.job("dense", name=name)
    await finished(database)
    found = hits(await text(api, "/find?text=item"))
    assert found["Jobs"] == ["first-ITEM"]
    assert found["Corpora and datasets"] == ["items"]
    assert found["Documents"] == ["Search docs"]
    found = hits(await text(api, "/find?text=3+plus+3"))
    assert found["Samples of the newest 3 results"] == ["second, sample 3", "first-ITEM, sample 3"]
    found = hits(await text(api, "/find?text=doctor"))
    assert found["Pages"] == ["Doctor"]
    found = hits(await text(api, "/find?text=gate.tau"))
    assert found["Settings"] == ["gate.tau"]
    assert "Settings" not in hits(await text(api, "/find?text=second"))


async def test_the_search_box_reads_the_first_samples_of_a_result_and_leads_to_all_of_them(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.job("dense", name="first")
    await finished(database)
    monkeypatch.setattr(find, "WINDOW", 4)
    group = "Samples of the newest 3 results"
    assert hits(await text(api, "/find?text=3+plus+3"))[group] == ["first, sample 3", "All samples of first"]
    page = await text(api, "/find?text=4+plus+4")
    assert hits(page)[group] == ["All samples of first"]
    (path,) = re.findall(r'href="(/jobs/[^"]*/samples\?text=[^"]*)"', page)
    assert "What is 4 plus 4" in await text(api, path)


@pytest.mark.parametrize("value", ["%3Cscript%3Ealert(1)", "%25", "%E2%80%AE"])
async def test_what_is_not_found_is_said_and_does_not_act(api: Api, value: str) -> None:
    page = await text(api, f"/find?text={value}")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert not hits(page).keys() - {"Documents"}


async def test_a_reader_finds_no_settings_of_the_service(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ)
    assert "Settings" not in hits(await text(keyed, "/find?text=limits.idle_s"))
    await sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    assert hits(await text(keyed, "/find?text=limits.idle_s"))["Settings"] == ["limits.idle_s"]


# The page "Now": devices, lanes, jobs that run.

OPEN = sqlalchemy_text("""
    INSERT INTO residencies (epoch, device, previous_epoch, models, cause, state, opened_at)
    SELECT 1, 'cpu:0', 0, array_agg(id), 'first', 'open', now() FROM models WHERE name = 'a-judge'""")


async def open_judge(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(OPEN)


async def test_nothing_was_ever_loaded_and_no_job_runs(api: Api) -> None:
    page = await browsing.text(api, "/now")
    assert "No model has been loaded yet" in page
    assert "mathrag job submit" in page
    assert "No call is queued" in page


async def test_what_is_resident_and_what_waits_is_said(api: Api, database: Database) -> None:
    await open_judge(database)
    await api.job("mathrag-gate", name="a-run")
    await scene.advance(database)
    found = await api.get("/v1/now")
    assert [model["name"] for model in found["devices"][0]["models"]] == ["a-judge"]
    page = await browsing.text(api, "/now")
    assert "a-judge is resident" in page
    assert "a-run" in page
    assert "because calls asked for its models first" in page


async def test_calls_are_counted_by_lane_and_model_with_their_pace(api: Api, database: Database) -> None:
    await open_judge(database)
    await api.job("dense")
    await scene.drain(database, scene.ScriptedExecutor())
    async with database.statement() as connection:
        work = await jobs.load_work(connection)
    ended = {each.model: each.ended for each in work}
    assert ended["dense"] == 5
    assert ended["a-generator"] == 5
    page = await browsing.text(api, "/now")
    assert '<td data-label="Model">dense</td>' in page
    assert '<td class="number" data-label="Calls per second">0.2</td>' in page, "five in thirty seconds"


async def test_an_operator_empties_a_device_and_uses_it_again(keyed: Api, database: Database) -> None:
    await browsing.sign_in(keyed, database, Scope.READ)
    assert "Drain" not in await browsing.text(keyed, "/now")
    await browsing.sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    page = await browsing.text(keyed, "/now")
    sent = await browsing.send(keyed, "/gpus/cpu:0/drain", {"csrf": browsing.token(page), "reason": "<b>new card"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/now")
    drained = await browsing.text(keyed, "/now")
    assert "Drained by an operator: &lt;b&gt;new card" in drained
    await browsing.send(keyed, "/gpus/cpu:0/release", {"csrf": browsing.token(drained)})
    held = await devices.load_device(database, "cpu:0")
    assert held.drain is None


async def test_an_unknown_device_is_not_drained(api: Api) -> None:
    reply = await browsing.send(api, "/gpus/cuda:9/drain", {})
    assert reply.status_code == 404
    assert "no device" in reply.text


# Models: what answers, where it is, what was measured of it, and what is said where nothing is.

MODELS = {name: Model(driver="scripted", footprint_mib=64) for name in ("a-judge", "a-generator", "absent")}


@pytest.fixture
async def modelled_api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url, scene.SETTINGS.model_copy(update={"models": MODELS})) as open_api:
        yield open_api


async def load(database: Database, name: str, mib: float) -> None:
    model = await scene.model(database, name)
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, "cpu:0")
        epoch = await residencies.insert_wanted(connection, "cpu:0", newest.epoch if newest else 0, [model], "test", {})
        assert epoch is not None
        await residencies.record_figures(connection, epoch, {"memory_mib": {str(model): mib}})
        await learned_memory.learn(connection, epoch, "")
    await scene.run_sql(database, "UPDATE residencies SET state = 'open', opened_at = now()")


async def test_a_list_says_which_models_are_served_and_where_they_are(modelled_api: Api, database: Database) -> None:
    await load(database, "a-judge", 41.0)
    page = await text(modelled_api, "/models")
    assert rows(page) == [
        "a-generator generate not loaded serves it scripted 64",
        "a-judge judge cpu:0 serves it scripted 64",
        "absent – not loaded does not serve it scripted 64",
    ]
    assert "No guard serves absent" in page


async def test_a_model_shows_its_memory_and_its_speed_as_measured(modelled_api: Api, database: Database) -> None:
    await load(database, "a-judge", 41.0)
    await modelled_api.job("mathrag-gate")
    await finished(database)
    found = await modelled_api.get("/v1/models/a-judge")
    assert [(band["device"], band["most_mib"]) for band in found["records"]["learned"]] == [("cpu:0", 41.0)]
    assert found["records"]["speed"]["calls"] > 0
    page = await text(modelled_api, "/models/a-judge")
    assert "Loaded on cpu:0" in page
    assert "64 MiB" in page
    assert "calls, the last one" in page
    assert rows(page)[0].startswith("a-job judge completed mathrag-gate")


async def test_a_model_without_a_guard_says_what_to_do(modelled_api: Api) -> None:
    page = await text(modelled_api, "/models/absent")
    assert "No guard serves it" in page
    assert "mathrag doctor" in page
    assert "No load has been measured yet" in page
    assert "mathrag job submit" in page


async def test_an_unknown_model_is_told_from_what_was_meant(modelled_api: Api) -> None:
    reply = await look(modelled_api, "/models/a-jugde")
    assert reply.status_code == 404
    assert "did you mean &#39;a-judge&#39;?" in reply.text
    problem = await modelled_api.http.get("/v1/models/a-jugde")
    assert problem.json()["hint"].startswith("did you mean 'a-judge'?")


async def test_a_model_is_connected_by_a_form_that_writes_the_settings_file(
    modelled_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "mathrag.yaml"
    monkeypatch.setenv("MATHRAG_CONFIG", str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    file = shutil.copy(SHIPPED / "rules-generator-f16.gguf", tmp_path / "mine.gguf")
    assert 'href="/models/connect"' in await text(modelled_api, "/models")
    found = await text(modelled_api, f"/models/connect?folder={tmp_path}")
    assert rows(found) == [f"{file} file 2"]
    chosen = await text(modelled_api, f"/models/connect?what={file}&role=generate")
    assert f"<code>{settings}</code> would look as follows" in chosen
    assert not settings.exists()
    reply = await send(modelled_api, "/models/connect", {"what": str(file), "role": "generate"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/models/connect?done=mine")
    written = yaml.safe_load(settings.read_text())
    assert (written["roles"]["generate"], written["models"]["mine"]["path"]) == ("mine", str(file))
    assert "mathrag up --detach" in await text(modelled_api, "/models/connect?done=mine")
    missing = await send(modelled_api, "/models/connect", {"what": str(tmp_path / "missing.gguf")})
    assert missing.status_code == 422
    assert "is not the GGUF file of a language model" in missing.text
    for strange in (
        "%00.gguf",
        f"{'x' * 4000}.gguf",
        "/proc/self/mem.gguf",
        "/tmp",
        "http://",
        "http://[",
        "~nobody/x.gguf",
    ):
        refused = await look(modelled_api, f"/models/connect?what={strange}")
        assert refused.status_code in (400, 422, 503), strange
    assert (await look(modelled_api, f"/models/connect?folder={'x' * 4000}")).status_code == 200
    settings.write_text("port: [")
    broken = await look(modelled_api, f"/models/connect?what={file}")
    assert (broken.status_code, "mathrag config validate" in broken.text) == (422, True)
    monkeypatch.setenv("MATHRAG_CONFIG", str(file / "mathrag.yaml"))
    unwritable = await send(modelled_api, "/models/connect", {"what": str(file)})
    assert (unwritable.status_code, "cannot be written" in unwritable.text) == (409, True)


async def test_a_model_is_asked_one_question_on_its_page(
    modelled_api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_pause(monkeypatch):
        async with answering(database):
            reply = await send(modelled_api, "/models/a-generator/try", {"question": "What is 2 + 2?"})
    assert reply.status_code == 200
    (job,) = await scene.rows(database, "SELECT public_id FROM jobs")
    answer = (await modelled_api.get(f"/v1/jobs/{job[0]}/samples/0"))["outcome"]["answer"]
    assert answer in reply.text.partition('<div class="written">')[2].partition("</div>")[0]
    assert "Prompt and provenance of this answer" in reply.text
    empty = await send(modelled_api, "/models/a-generator/try", {"question": ""})
    assert (empty.status_code, "question" in empty.text) == (422, True)


async def test_without_models_the_page_says_how_to_name_one(database: Database, redis_url: str) -> None:
    empty = scene.SETTINGS.model_copy(update={"models": {}})
    async with serving(database, redis_url, empty) as modelled_api:
        assert "mathrag config schema" in await text(modelled_api, "/models")


async def test_a_hostile_version_is_shown_and_does_not_act(modelled_api: Api, database: Database) -> None:
    hostile = "<script>alert(1)</script>\u202e"
    for served in (True, False):
        await scene.run_sql(
            database,
            "INSERT INTO models (name, backend, digest, version, hash, needs_lease, served)"
            " VALUES ('a-judge', 'llama.cpp', 'x', :v, :h, true, :served)", v=hostile, h=bytes([served]), served=served,
        )  # fmt: skip
    page = await text(modelled_api, "/models/a-judge")
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    assert "U+202E" in page
