"""A guard finds out what its models are while it is up: one may be slow to say it, another may become another one."""

import asyncio
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.drivers.plugin import ScriptedDriver
from shared.calls import Completion, Decoding, End, ModelCall, RunRequest
from shared.runtime.pins import ModelIdentity
from shared.settings import Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import Reply, Seen, answer, as_json, chat_server
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio


async def registered(database: Database, *names: str) -> None:
    with anyio.fail_after(60):
        wanted = [(name,) for name in names]
        while await rows(database, "SELECT name FROM models WHERE served ORDER BY id") != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_model_that_is_slow_to_be_identified_delays_neither_the_guard_nor_other_models(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "REGISTER_S", 0.2)
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    known, identify = asyncio.Event(), ScriptedDriver.identify

    async def slow(self: ScriptedDriver) -> ModelIdentity:
        if self._name == "slow":
            await known.wait()
        return await identify(self)

    monkeypatch.setattr(ScriptedDriver, "identify", slow)
    models = {name: Model(driver="scripted") for name in ("slow", "quick")}
    settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
    async with serve_app(create_app(settings)):
        await registered(database, "quick")
        known.set()
        await registered(database, "quick", "slow")


async def test_a_guard_that_stops_waits_for_no_version(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "REGISTER_S", 0.2)
    broken_off = asyncio.Event()

    async def endless(_: ScriptedDriver) -> ModelIdentity:
        try:
            await asyncio.Event().wait()
        finally:
            broken_off.set()
        raise AssertionError

    monkeypatch.setattr(ScriptedDriver, "identify", endless)
    models = {"slow": Model(driver="scripted")}
    settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
    async with serve_app(create_app(settings)):
        await registered(database)
    assert broken_off.is_set()


async def test_a_remote_server_that_serves_something_else_is_registered_anew(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "RETRY_S", 0.01)
    sha = ["aaaa"]

    def tgi(seen: Seen) -> Reply:
        info = {"model_id": "Qwen/Q", "model_sha": sha[0], "version": "3.3.6"}
        return as_json(info) if seen.path == "/info" else answer("4")

    async with chat_server(tgi) as far:
        models = {"far": Model(driver="remote", url=far.url)}
        settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
        app = create_app(settings)
        async with serve_app(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
            await registered(database, "far")
            ((model_id,),) = await rows(database, "SELECT id FROM models WHERE served")
            sha[0] = "bbbb"
            call = ModelCall(id=1, model_id=int(str(model_id)), prompt="2 + 2", decoding=Decoding(max_tokens=4), seed=1)
            request = RunRequest(epoch=None, calls=(call,))
            said = (await http.post("/run", content=msgspec.json.encode(request))).text
            assert msgspec.json.decode(said, type=Completion).end == End.RELEASED
            with anyio.fail_after(60):
                while await rows(database, "SELECT digest FROM models WHERE served") != [("bbbb",)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await http.post("/run", content=msgspec.json.encode(request))).status_code == 409
    assert await rows(database, "SELECT digest, served FROM models ORDER BY id") == [("aaaa", False), ("bbbb", True)]
