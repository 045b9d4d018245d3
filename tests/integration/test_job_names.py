"""A name stands for one job: a second job of the same name is refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from shared.runtime import lifecycle
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

BODY = {"name": "first", "dataset": "items", "pipeline": "closed-book"}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def post(api: Api, body: Any = BODY, key: str | None = None) -> httpx2.Response:
    return await api.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key} if key else {})


async def names(database: Database) -> list[object]:
    return [row[0] for row in await scene.rows(database, "SELECT name FROM jobs ORDER BY id")]


async def test_a_second_job_of_the_same_name_is_refused_with_the_id_of_the_first(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    refused = await post(api)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:mathrag:conflict")
    assert first in refused.json()["detail"]
    assert "another name" in refused.json()["hint"]
    await finished(database)
    assert (await post(api)).status_code == 409
    assert await names(database) == ["first"]


async def test_the_key_of_the_first_request_still_returns_the_first_job(api: Api) -> None:
    first = await post(api, key="k")
    again = await post(api, key="k")
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (await post(api, key="other")).status_code == 409


async def test_of_many_requests_at_once_one_gets_the_name(api: Api, database: Database) -> None:
    replies = await asyncio.gather(*(post(api) for _ in range(12)))
    assert Counter(reply.status_code for reply in replies) == {202: 1, 409: 11}
    assert await names(database) == ["first"]


async def test_the_name_of_a_job_in_flight_is_held_until_its_commit(api: Api, database: Database) -> None:
    async with database.engine.connect() as other:
        await other.begin()
        await lifecycle.reserve(other, ["first"])
        refused = await post(api)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:mathrag:in_progress")
        await other.rollback()
    assert (await post(api)).status_code == 202


async def test_a_job_cannot_be_renamed_to_the_name_of_another(api: Api) -> None:
    await post(api)
    second = (await post(api, {**BODY, "name": "second"})).json()["id"]
    any_version = {"If-Match": "*"}
    renamed = await api.http.patch(f"/v1/jobs/{second}", json={"name": "first"}, headers=any_version)
    assert (renamed.status_code, "'first'" in renamed.json()["detail"]) == (409, True)
    kept = await api.http.patch(f"/v1/jobs/{second}", json={"name": "second", "rank": 3}, headers=any_version)
    assert (kept.status_code, kept.json()["rank"]) == (200, 3)


async def test_requeued_twice_a_job_gets_the_next_number_each_time(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    await post(api, {**BODY, "name": "first-r3"})
    await finished(database)
    for _ in range(2):
        assert (await api.http.post(f"/v1/jobs/{first}/requeue")).status_code == 202
    assert await names(database) == ["first", "first-r3", "first-r2", "first-r4"]


async def test_an_experiment_whose_job_would_have_a_taken_name_is_refused_whole(api: Api, database: Database) -> None:
    await post(api, {**BODY, "name": "grid-b-2"})
    variants = [{"name": name, "pipeline": pipeline} for name, pipeline in (("a", "closed-book"), ("b", "hybrid"))]
    body = {"name": "grid", "datasets": [{"dataset": "items", "corpus": "docs"}], "variants": variants}
    refused = await api.http.post("/v1/experiments", json=body)
    assert (refused.status_code, "'grid-b-2'" in refused.json()["detail"]) == (409, True)
    assert await names(database) == ["grid-b-2"]


async def test_names_that_earlier_releases_gave_twice_stay_as_they_are(api: Api, database: Database) -> None:
    first = (await post(api)).json()["id"]
    await post(api, {**BODY, "name": "second"})
    await scene.run_sql(database, "UPDATE jobs SET name = 'first'")
    assert [job["name"] for job in (await api.get("/v1/jobs"))["data"]] == ["first", "first"]
    refused = await post(api)
    assert (refused.status_code, first in refused.json()["detail"]) == (409, True)


async def test_a_chat_takes_no_name(api: Api, database: Database) -> None:
    for question in ("What is 1 plus 1?", "What is 2 plus 2?"):
        assert (await api.http.post("/v1/chat", json={"question": question, "wait_s": 0})).status_code in (200, 202)
    made = await post(api, {**BODY, "name": "chat"})
    assert made.status_code == 202
    assert (await api.get("/v1/jobs/chat"))["id"] == made.json()["id"]
