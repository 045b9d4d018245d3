"""The first page: devices, lanes, jobs that run."""

import pytest
from sqlalchemy import text

from shared.shapes import Scope
from shared.storage import devices, jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.pages import browsing

pytestmark = pytest.mark.anyio

OPEN = text("""
    INSERT INTO residencies (epoch, device, previous_epoch, models, cause, state, opened_at)
    SELECT 1, 'cpu:0', 0, array_agg(id), 'first', 'open', now() FROM models WHERE name = 'a-judge'""")


async def open_judge(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(OPEN)


async def test_nothing_was_ever_loaded_and_no_job_runs(api: Api) -> None:
    page = await browsing.text(api, "/")
    assert "No model has been loaded yet" in page
    assert "mathrag job submit" in page
    assert "No call is queued" in page


async def test_what_is_resident_and_what_waits_is_said(api: Api, database: Database) -> None:
    await open_judge(database)
    await api.job("mathrag-gate", name="a-run")
    await scene.advance(database)
    found = await api.get("/v1/now")
    assert [model["name"] for model in found["devices"][0]["models"]] == ["a-judge"]
    page = await browsing.text(api, "/")
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
    page = await browsing.text(api, "/")
    assert '<td data-label="Model">dense</td>' in page
    assert '<td class="number" data-label="Calls per second">0.2</td>' in page, "five in thirty seconds"


async def test_an_operator_empties_a_device_and_uses_it_again(keyed: Api, database: Database) -> None:
    await browsing.sign_in(keyed, database, Scope.READ)
    assert "Drain" not in await browsing.text(keyed, "/")
    await browsing.sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    page = await browsing.text(keyed, "/")
    sent = await browsing.send(keyed, "/gpus/cpu:0/drain", {"csrf": browsing.token(page), "reason": "<b>new card"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/")
    drained = await browsing.text(keyed, "/")
    assert "Drained by an operator: &lt;b&gt;new card" in drained
    await browsing.send(keyed, "/gpus/cpu:0/release", {"csrf": browsing.token(drained)})
    held = await devices.load_device(database, "cpu:0")
    assert held.drain is None


async def test_an_unknown_device_is_not_drained(api: Api) -> None:
    reply = await browsing.send(api, "/gpus/cuda:9/drain", {})
    assert reply.status_code == 404
    assert "no device" in reply.text
