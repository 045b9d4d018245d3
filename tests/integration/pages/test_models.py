"""Models: what answers, where it is, what was measured of it, and what is said where nothing is."""

from collections.abc import AsyncIterator

import pytest

from shared.lease import learned_memory, residencies
from shared.settings import Model
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import look, rows, text

pytestmark = pytest.mark.anyio

MODELS = {name: Model(driver="scripted", footprint_mib=64) for name in ("a-judge", "a-generator", "absent")}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
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


async def test_a_list_says_which_models_are_served_and_where_they_are(api: Api, database: Database) -> None:
    await load(database, "a-judge", 41.0)
    page = await text(api, "/models")
    assert rows(page) == [
        "a-generator generate not loaded serves it scripted 64",
        "a-judge judge cpu:0 serves it scripted 64",
        "absent – not loaded does not serve it scripted 64",
    ]
    assert "No guard serves absent" in page


async def test_a_model_shows_its_memory_and_its_speed_as_measured(api: Api, database: Database) -> None:
    await load(database, "a-judge", 41.0)
    await api.job("mathrag-gate")
    await finished(database)
    found = await api.get("/v1/models/a-judge")
    assert [(band["device"], band["most_mib"]) for band in found["records"]["learned"]] == [("cpu:0", 41.0)]
    assert found["records"]["speed"]["calls"] > 0
    page = await text(api, "/models/a-judge")
    assert "Loaded on cpu:0" in page
    assert "64 MiB" in page
    assert "calls until" in page
    assert rows(page)[0].startswith("a-job judge completed mathrag-gate")


async def test_a_model_without_a_guard_says_what_to_do(api: Api) -> None:
    page = await text(api, "/models/absent")
    assert "No guard serves it" in page
    assert "mathrag doctor" in page
    assert "No load has been measured yet" in page
    assert "mathrag job submit" in page


async def test_an_unknown_model_is_told_from_what_was_meant(api: Api) -> None:
    reply = await look(api, "/models/a-jugde")
    assert reply.status_code == 404
    assert "did you mean &#39;a-judge&#39;?" in reply.text
    problem = await api.http.get("/v1/models/a-jugde")
    assert problem.json()["hint"].startswith("did you mean 'a-judge'?")


async def test_without_models_the_page_says_how_to_name_one(database: Database, redis_url: str) -> None:
    empty = scene.SETTINGS.model_copy(update={"models": {}})
    async with serving(database, redis_url, empty) as api:
        assert "mathrag config schema" in await text(api, "/models")


async def test_a_hostile_version_is_shown_and_does_not_act(api: Api, database: Database) -> None:
    hostile = "<script>alert(1)</script>\u202e"
    for served in (True, False):
        await scene.run_sql(
            database,
            "INSERT INTO models (name, backend, digest, version, hash, needs_lease, served)"
            " VALUES ('a-judge', 'llama.cpp', 'x', :v, :h, true, :served)", v=hostile, h=bytes([served]), served=served,
        )  # fmt: skip
    page = await text(api, "/models/a-judge")
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    assert "U+202E" in page
