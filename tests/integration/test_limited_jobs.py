"""A job with a limit asks the first items of its dataset, and says so wherever its figures are quoted."""

from collections.abc import AsyncIterator

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

CALIBRATED = """
    SELECT DISTINCT convert_from(c.request, 'UTF8') FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id WHERE s.kind = 'prepare' AND c.role = 'retrieve'"""


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def test_the_first_items_are_asked_as_often_as_there_are_repeats(api: Api, database: Database) -> None:
    job = await api.job(limit=2, repeats=2)
    assert (job["limit"], job["request_counts"]["total"]) == (2, 4)
    await finished(database)
    asked = await scene.rows(database, "SELECT ordinal, repeat FROM samples ORDER BY ordinal, repeat")
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 1)]
    report = await api.get("/v1/jobs/a-job/report")
    assert report["settings"]["limit"] == 2
    assert any("first 2 items of items" in note for note in report["notes"])
    assert (await api.get("/v1/jobs/a-job/audit"))["clean"]


async def test_a_limit_beyond_the_end_asks_all_and_none_is_not_recorded(api: Api, database: Database) -> None:
    assert (await api.job(limit=99))["request_counts"]["total"] == 5
    plain = await api.job()
    assert ("limit" in plain, plain["request_counts"]["total"]) == (False, 5)
    await finished(database)
    assert await scene.rows(database, "SELECT code ? 'limit' FROM jobs ORDER BY id") == [(True,), (False,)]
    assert (await api.get(f"/v1/jobs/{plain['id']}/audit"))["clean"]


async def test_a_calibration_uses_only_the_items_that_are_asked(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", limit=2, params={"gate": {"tau": 1.0, "items": 5, "min_pairs": 2}})
    await scene.drain(database, scene.ScriptedExecutor(scene.by_rule))
    questions = await scene.rows(database, CALIBRATED)
    assert len(questions) >= 2
    assert all("0 plus 0" in str(row[0]) or "1 plus 1" in str(row[0]) for row in questions)


async def test_a_requeued_job_keeps_its_limit(api: Api, database: Database) -> None:
    job = await api.job(limit=3)
    await finished(database)
    new = (await api.http.post(f"/v1/jobs/{job['id']}/requeue")).json()
    assert (new["limit"], new["request_counts"]["total"]) == (3, 3)


async def test_samples_beyond_the_limit_are_found_by_the_audit(api: Api, database: Database) -> None:
    await api.job(limit=2)
    await finished(database)
    await scene.run_sql(
        database,
        "INSERT INTO samples (job_id, kind, ordinal, repeat, state, ended_at)"
        " SELECT id, 'item', 4, 0, 2, now() FROM jobs",
    )
    found = await api.get("/v1/jobs/a-job/audit")
    assert "I12" in {violation["invariant"] for violation in found["violations"]}


@pytest.mark.parametrize("limit", [0, -1, 1 << 31, "2", 1.5])
async def test_a_limit_that_is_no_number_of_items_is_refused(api: Api, limit: object) -> None:
    body = {"name": "a-job", "dataset": "items", "pipeline": "closed-book", "limit": limit}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "limit")
