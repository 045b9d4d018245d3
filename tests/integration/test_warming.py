"""Warm next: which model is read ahead, when, and when not any more."""

import asyncio

import anyio
import pytest

from services.guard import guard
from services.guard.guard import Guard, ServedModel, Warmer
from services.guard.memory import GuardClock
from shared.storage.database import Database
from tests.doubles.puppets import PuppetDriver, PuppetServer
from tests.integration.scene import furnish, model, run_sql, submit_job
from tests.integration.scheduling import DEVICE, advance

pytestmark = pytest.mark.anyio


class Readable(PuppetDriver):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.clear_tick, self.stopped = 0, 0
        self.end = asyncio.Event()

    async def warm(self) -> None:
        self.clear_tick += 1
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise


class Scene:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.guard = Guard(DEVICE, GuardClock())
        self.drivers = {name: Readable(name) for name in ("a-judge", "a-generator", "other-judge")}
        self.warming = Warmer(database, self.guard, self.drivers)

    async def job(self, model_name: str) -> None:
        await submit_job(self.database, "closed-book", name=model_name, models={"generate": model_name}, reuse="none")
        await advance(self.database)

    async def open(self, epoch: int, *names: str) -> None:
        ids = [await model(self.database, name) for name in names]
        self.guard.open(epoch, {each: ServedModel(PuppetServer(), 1, 1.0) for each in ids})

    async def poll(self) -> None:
        await self.warming.poll()
        await asyncio.sleep(0)

    def clear_tick(self) -> dict[str, int]:
        return {name: driver.clear_tick for name, driver in self.drivers.items() if driver.clear_tick}


@pytest.fixture
async def scene(database: Database, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(guard, "POLL_S", 0.0)
    await furnish(database, 2)
    return Scene(database)


async def test_the_model_that_others_wait_for_is_read_ahead_once(scene: Scene) -> None:
    await scene.job("a-judge")
    await scene.open(1, "a-judge")
    await scene.poll()
    assert scene.clear_tick() == {}  # nobody waits
    await scene.job("a-generator")
    for _ in range(3):
        await scene.poll()
    assert scene.clear_tick() == {"a-generator": 1}
    scene.drivers["a-generator"].end.set()
    await scene.poll()
    assert scene.clear_tick() == {"a-generator": 1}
    await scene.open(3, "a-judge")
    await scene.poll()
    assert scene.clear_tick() == {"a-generator": 2}


async def test_reading_stops_when_a_flip_begins(scene: Scene) -> None:
    await scene.job("a-generator")
    await scene.open(1, "a-judge")
    await scene.poll()
    scene.guard.close()
    with anyio.fail_after(60):
        await scene.poll()
    assert scene.drivers["a-generator"].stopped == 1
    await scene.poll()
    assert scene.clear_tick() == {"a-generator": 1}


async def test_nothing_is_read_while_nothing_is_resident(scene: Scene) -> None:
    await scene.job("a-generator")
    await scene.poll()
    await scene.open(2)  # drained by an operator
    await scene.poll()
    assert scene.clear_tick() == {}


async def test_what_is_resident_already_is_not_read(scene: Scene) -> None:
    await scene.job("a-generator")
    await scene.open(1, "a-judge", "a-generator")
    await scene.poll()
    assert scene.clear_tick() == {}


async def test_models_of_other_guards_and_retired_ones_are_not_read(scene: Scene) -> None:
    await scene.job("a-generator")
    await scene.open(1, "a-judge")
    for change in ("device = 'GPU-elsewhere'", "device = 'cpu:0', served = false", "served = true, name = 'unknown'"):
        await run_sql(scene.database, f"UPDATE models SET {change} WHERE name = 'a-generator'")  # noqa: S608 - ours
        await scene.poll()
    assert scene.clear_tick() == {}


async def test_a_driver_that_fails_at_it_fails_nobody(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise OSError("the disk is gone")

    scene.drivers["a-generator"].warm = broken  # type: ignore[method-assign]
    await scene.job("a-generator")
    await scene.open(1, "a-judge")
    await scene.poll()
    await scene.warming.stop()
    assert "a-generator was not read ahead" in caplog.text
