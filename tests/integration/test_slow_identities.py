"""A guard is up before it knows what all of its models are: a version may take a minute to be named, a hash as well."""

import asyncio
from pathlib import Path

import anyio
import pytest

from services.guard import app as guard_app
from services.guard.app import create_app
from services.guard.drivers.scripted import ScriptedDriver
from shared.runtime.models import ModelIdentity
from shared.settings import Model, Settings
from shared.storage.database import Database
from tests.doubles.served import served
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio


async def registered(database: Database, *names: str) -> None:
    """Until these are served; the limit is a safety net."""
    with anyio.fail_after(60):
        wanted = [(name,) for name in names]
        while await rows(database, "SELECT name FROM models WHERE served ORDER BY id") != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_model_that_is_slow_to_be_identified_delays_neither_the_guard_nor_other_models(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registered once it is known; the guard serves the others until then."""
    monkeypatch.setattr(guard_app, "REGISTER_S", 0.2)
    monkeypatch.setattr(guard_app, "ABSENT_S", 0.01)
    known, identify = asyncio.Event(), ScriptedDriver.identify

    async def slow(self: ScriptedDriver) -> ModelIdentity:
        if self._name == "slow":
            await known.wait()
        return await identify(self)

    monkeypatch.setattr(ScriptedDriver, "identify", slow)
    models = {name: Model(driver="scripted") for name in ("slow", "quick")}
    settings = Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)
    async with served(create_app(settings)):
        await registered(database, "quick")
        known.set()
        await registered(database, "quick", "slow")


async def test_a_guard_that_stops_waits_for_no_version(
    database_url: str, redis_url: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds out what a model is ends with the guard."""
    monkeypatch.setattr(guard_app, "REGISTER_S", 0.2)
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
    async with served(create_app(settings)):
        await registered(database)
    assert broken_off.is_set()
