"""The configuration: what holds, every version, what two differ in, and who may change it; settings without secrets."""

from typing import Any

import pytest

from services.orchestrator.web import configuration
from shared.settings import Elasticsearch, Model, Retrieval
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import look, next_page, rows, send, sign_in, text, token

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>\u202e"


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
    assert "They are the same" in await text(api, "/configuration?left=2&right=2")


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
    assert "Settings are shown to operators" in page
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
    await change(api, anchors={"negative": HOSTILE}, enhance={"terms": {HOSTILE: [HOSTILE]}})
    await change(api, anchors={"negative": "harmless"})
    for path in ("/configuration", "/configuration?left=0&right=1"):
        page = await text(api, path)
        assert "<script>alert" not in page
        assert "U+202E" in page
