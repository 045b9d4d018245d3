import asyncio

import anyio
import pytest

from services.guard import guard
from services.guard.guard import Guard, ServedModel, StaleEpoch, Warmer
from services.guard.memory import DeviceProcess, GuardClock, MemoryReading, NotMeasured
from services.guard.reconciler import Reconciler
from shared.calls import End
from shared.lease import residencies
from shared.lease.policy import FlipState
from shared.settings import Device
from shared.storage.database import Database
from tests.doubles.puppets import PuppetDriver, PuppetServer
from tests.integration.scene import furnish, model, rows, run_sql, submit_job
from tests.integration.scheduling import DEVICE as SCHEDULING_DEVICE
from tests.integration.scheduling import advance
from tests.integration.test_reconciler import MIB, Rig

# Flips of the real reconciler on real rows, on a device whose memory the test decides and whose time it counts.


pytestmark = pytest.mark.anyio

DEVICE = Device(budget_mib=160, reserve_mib=10, free_timeout_s=2)
TOTAL = 200.0
"""Room for one model of 96 MiB, and for two never."""


class PuppetMemory:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.each = float(MIB)
        """What a puppet takes."""
        self.lags: list[float] = []
        """Still taken at the next readings."""
        self.stranger = 0.0
        self.lost: str | None = None

    async def read(self) -> MemoryReading:
        if self.lost:
            raise NotMeasured(self.lost)
        alive = [server for driver in self._rig.drivers.values() for server in driver.servers if server.alive]
        used = len(alive) * self.each + (self.lags.pop(0) if self.lags else 0) + self.stranger
        strangers = (DeviceProcess(6_000_000, "somebody", self.stranger),) if self.stranger else ()
        return MemoryReading(TOTAL, used, TOTAL - used, strangers, "570.1")


class MeasuredRig(Rig):
    def __init__(self, database: Database, device: Device = DEVICE) -> None:
        super().__init__(database, device)
        self.memory = PuppetMemory(self)
        self.slept = 0.0
        self.reconciler = Reconciler(
            database, self.guard, device, self.configured, self.drivers, self._announce, memory=self.memory,
            sleep=self._sleep,
        )  # fmt: skip

    async def _sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def measured(self, epoch: int) -> dict[str, object]:
        ((found,),) = await rows(self.database, "SELECT measured FROM residencies WHERE epoch = :e", e=epoch)
        assert isinstance(found, dict)
        return found

    async def look_until(self, state: FlipState) -> None:
        for _ in range(10):
            await self.reconciler.reconcile()
        assert self.reconciler.state is state


@pytest.fixture
async def rig(database: Database) -> MeasuredRig:
    made = MeasuredRig(database)
    await made.register()
    return made


async def test_a_load_waits_for_memory_that_comes_back_late(rig: MeasuredRig) -> None:
    await rig.flip("judge")
    rig.memory.lags = [96.0] * 7
    epoch = await rig.flip("generator")
    assert (await rig.row(epoch))[0] == "open"
    assert rig.memory.lags == []
    assert rig.drivers["judge"].servers[0].stops == 1
    assert rig.drivers["judge"].taken_over == 0


async def test_memory_that_does_not_come_back_quarantines_and_says_how_much_is_missing(rig: MeasuredRig) -> None:
    await rig.flip("judge")
    rig.memory.lags = [96.0] * 1000
    epoch = await rig.flip("generator")
    state, reason = await rig.row(epoch)
    assert state == "quarantined"
    assert "verify_free: 2 MiB are missing: 104 of 200 are free, 96 and a reserve of 10 are needed" in reason
    assert rig.drivers["judge"].taken_over == 1
    assert rig.drivers["generator"].servers == []
    rig.memory.lags.clear()
    assert (await rig.row(await rig.flip("generator")))[0] == "open"


async def test_a_server_that_survives_its_stop_is_stopped_again_before_the_device_is_given_up(rig: MeasuredRig) -> None:
    await rig.flip("judge")
    judge = rig.server("judge")
    judge.immortal = True
    epoch = await rig.flip("generator")
    assert "2 MiB are missing" in (await rig.row(epoch))[1]
    assert judge.stops >= 2
    judge.immortal = False
    assert (await rig.row(await rig.flip("generator")))[0] == "open"
    assert not judge.alive


async def test_a_stranger_in_the_way_is_named(rig: MeasuredRig) -> None:
    rig.memory.stranger = 150
    epoch = await rig.flip("judge")
    assert "somebody (pid 6000000) holds 150 MiB" in (await rig.row(epoch))[1]
    assert rig.drivers["judge"].servers == []
    rig.memory.stranger = 0
    assert (await rig.row(await rig.flip("judge")))[0] == "open"


async def test_what_is_in_the_way_of_a_quarantined_device_is_seen_without_a_load(rig: MeasuredRig) -> None:
    rig.memory.stranger = 150
    await rig.flip("judge")
    assert "somebody (pid 6000000) holds 150 MiB" in str(await rig.reconciler.find_obstacle())
    rig.memory.stranger, rig.memory.lost = 0, "NVML: GPU is lost"
    assert await rig.reconciler.find_obstacle() == "NVML: GPU is lost"
    rig.memory.lost, judge = None, rig.drivers["judge"]
    judge.missing = True
    assert await rig.reconciler.find_obstacle() == "no model file of judge"
    judge.missing, judge.digest = False, "v2"
    assert "is not the one jobs were submitted with" in str(await rig.reconciler.find_obstacle())
    judge.digest = "v1"
    assert await rig.reconciler.find_obstacle() is None
    assert judge.servers == []


async def test_what_the_plan_expects_is_what_must_be_free(rig: MeasuredRig) -> None:
    rig.memory.stranger = 38
    async with rig.database.transaction() as connection:
        plan = {"predicted_mib": 153}
        epoch = await residencies.insert_wanted(connection, "cpu:0", 0, [rig.ids["judge"]], "test", plan)
    await rig.reconciler.reconcile()
    assert epoch is not None
    assert "1 MiB are missing: 162 of 200 are free, 153 and a reserve of 10" in (await rig.row(epoch))[1]


async def test_a_load_beyond_the_budget_is_freed_again_and_its_figures_stay(rig: MeasuredRig) -> None:
    rig.memory.each = 170
    epoch = await rig.flip("judge")
    assert "170 MiB were loaded, the budget is 160 MiB" in (await rig.row(epoch))[1]
    assert not rig.server("judge").alive
    assert (await rig.measured(epoch))["loaded_mib"] == 170


async def test_a_residency_remembers_the_most_that_it_held(rig: MeasuredRig) -> None:
    epoch = await rig.flip("judge")
    rig.memory.each = 120
    await rig.look_until(FlipState.OPEN)
    rig.memory.each, rig.memory.stranger = 100, 50
    await rig.look_until(FlipState.OPEN)
    found = await rig.measured(epoch)
    del found["memory_mib"]
    assert found == {
        "before_mib": 0, "loaded_mib": 96, "budget_mib": 160, "peak_mib": 120, "strangers_mib": 50,
    }  # fmt: skip


async def test_a_device_that_is_lost_ends_its_residency_and_gives_the_calls_back(rig: MeasuredRig) -> None:
    epoch = await rig.flip("judge")
    running = rig.send(epoch, (1, "judge"))
    await rig.server("judge").has(1)
    rig.memory.lost = "GPU-1 fell off the bus"
    await rig.look_until(FlipState.QUARANTINED)
    assert [each.end for each in await running] == [End.RELEASED]
    assert await rig.row(epoch) == ("quarantined", "GPU-1 fell off the bus")
    assert not rig.server("judge").alive
    with pytest.raises(StaleEpoch):
        await rig.send(epoch, (2, "judge"))
    again = await rig.flip("judge")
    assert await rig.row(again) == ("quarantined", "verify_free: GPU-1 fell off the bus")
    assert len(rig.drivers["judge"].servers) == 1
    rig.memory.lost = None
    assert (await rig.row(await rig.flip("judge")))[0] == "open"


async def test_a_device_that_is_emptied_needs_no_room(rig: MeasuredRig) -> None:
    await rig.flip("judge")
    rig.memory.lost = "no driver"
    assert (await rig.row(await rig.flip()))[0] == "open"
    assert rig.guard.epoch is not None


# Warm next: which model is read ahead, when, and when not any more.


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
        self.guard = Guard(SCHEDULING_DEVICE, GuardClock())
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
