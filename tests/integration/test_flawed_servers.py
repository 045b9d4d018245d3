"""A model server whose version loses answers is warned of wherever models and jobs are shown, and used all the same."""

from collections.abc import AsyncIterator

import pytest

from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def register(database: Database, name: str, version: str) -> None:
    async with database.transaction() as connection:
        await pins.register(
            connection, ModelIdentity(name=name, backend="llama.cpp", digest="d", version=version, device="cpu:0")
        )


async def test_a_flawed_version_is_warned_of_and_not_refused(api: Api, database: Database) -> None:
    await register(database, "lossy", "10434 (7e4c0a9)")
    await register(database, "world-judge", "10434 (7e4c0a9)")
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "models": {"generate": "lossy"}}
    reply = await api.http.post("/v1/jobs", json=body)
    assert reply.status_code == 202
    (warning,) = reply.json()["warnings"]
    assert warning.startswith("model 'lossy': llama.cpp 10434 (7e4c0a9) ends an answer")
    listed = {each["name"]: each for each in await api.get("/v1/models")}
    assert (listed["world-judge"]["version"], "7e4c0a9" in listed["world-judge"]["warning"]) == (
        "10434 (7e4c0a9)",
        True,
    )


async def test_nothing_is_said_of_other_versions(api: Api, database: Database) -> None:
    await register(database, "whole", "11434 (1234567)")
    body = {"name": "mine", "dataset": "items", "pipeline": "closed-book", "models": {"generate": "whole"}}
    assert "warnings" not in (await api.http.post("/v1/jobs", json=body)).json()
