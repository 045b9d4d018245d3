"""A model that is not there when the guard starts is registered once it is."""

import asyncio
from pathlib import Path

import anyio
import pytest

from services.guard import app as app_module
from services.guard.app import create_app
from shared.settings import Device, Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply
from tests.doubles.ollama_server import ollama_server
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio

TAG = "judge:0.5b"


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, device=Device(id="cpu:0"))


async def registered(database: Database, *names: str) -> None:
    with anyio.fail_after(60):
        wanted = [(name,) for name in names]
        while await rows(database, "SELECT name FROM models WHERE served") != wanted:  # noqa: ASYNC110 - a row says nothing
            await asyncio.sleep(0.01)


async def test_a_model_that_is_pulled_later_is_registered(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    async with ollama_server() as (double, http):
        settings.models = {TAG: Model(driver="ollama", url=http.url)}
        respond, broken = http.respond, [Reply(status=500), Reply(missing=1, reset=True), Reply(body=b"?")]
        async with serve_app(create_app(settings)):
            await registered(database)
            http.respond = lambda seen: broken.pop(0) if broken else respond(seen)
            double.pull(TAG)
            await registered(database, TAG)
    assert not broken


async def test_a_failure_of_ours_does_not_end_the_tries(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    register, failures = app_module.pins.register, [ConnectionError("the database is away")]

    async def unlucky(*arguments: object) -> int:
        if failures:
            raise failures.pop()
        return await register(*arguments)  # type: ignore[arg-type]

    async with ollama_server() as (double, http):
        settings.models = {TAG: Model(driver="ollama", url=http.url)}
        async with serve_app(create_app(settings)):
            monkeypatch.setattr(app_module.pins, "register", unlucky)
            double.pull(TAG)
            await registered(database, TAG)
    assert "registering failed" in caplog.text
