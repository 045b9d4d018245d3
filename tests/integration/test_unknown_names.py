"""Who mistypes a name is told the one that was meant."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

JOB = {"name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": "closed-book"}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        await serving_api.job()
        yield serving_api


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"pipeline": "closed-bok"}, "closed-book"),
        ({"dataset": "item"}, "items"),
        ({"corpus": "doc"}, "docs"),
        ({"models": {"jugde": "a-judge"}}, "judge"),
        ({"models": {"judge": "a-jugde"}}, "a-judge"),
        ({"params": {"candidtes": 3}}, "candidates"),
        ({"params": {"gate": {"tua": 0.3}}}, "tau"),
        ({"repeat": 2}, "repeats"),
    ],
)
async def test_a_submit_with_a_mistyped_name_is_refused_with_the_right_one(
    api: Api, fields: dict[str, Any], meant: str
) -> None:
    refused = await api.http.post("/v1/jobs", json={**JOB, "name": "another", **fields})
    assert refused.status_code in (404, 422)
    assert f"did you mean {meant!r}?" in refused.json()["hint"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/jobs/a-jbo", "a-job"),
        ("/v1/datasets/itms", "items"),
        ("/v1/corpora/dosc", "docs"),
        ("/v1/corpora/docs/contamination?dataset=itms", "items"),
        ("/v1/jobs?pipline=dense", "pipeline"),
    ],
)
async def test_what_is_asked_for_under_a_mistyped_name_is_suggested(api: Api, path: str, meant: str) -> None:
    refused = await api.http.get(path)
    assert refused.status_code in (404, 422)
    assert f"did you mean {meant!r}?" in refused.json()["hint"]


async def test_where_nothing_is_alike_the_hint_says_what_lists_all(api: Api) -> None:
    assert (await api.http.get("/v1/jobs/zzzzzz")).json()["hint"] == "mathrag job list"
