"""The reconciler carries out flips on real rows: what it writes, what it refuses, and what a failure leaves behind."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from services.guard.guard import Guard, StaleEpoch
from services.guard.reconciler import Reconciler
from shared.calls import Completion, Decoding, End, ModelCall, RunRequest
from shared.lease import residencies
from shared.lease.lease import Phase
from shared.lease.policy import FlipState
from shared.runtime import pins
from shared.settings import Device, Model
from shared.storage.database import Database
from tests.doubles.puppets import PuppetDriver, PuppetServer, StepClock
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio

DEVICE = Device(budget_mib=160)
MIB = 96


class Rig:
    def __init__(self, database: Database, device: Device = DEVICE) -> None:
        self.database = database
        self.clock = StepClock()
        self.guard = Guard(device.id, self.clock)  # type: ignore[arg-type]
        self.drivers = {name: PuppetDriver(name, MIB) for name in ("judge", "generator")}
        self.configured = {name: Model(driver="scripted", footprint_mib=MIB, parallel=4) for name in self.drivers}
        self.announced: list[tuple[int, Phase, tuple[int, ...]]] = []
        self.reconciler = Reconciler(database, self.guard, device, self.configured, self.drivers, self._announce)
        self.ids: dict[str, int] = {}

    async def _announce(self, epoch: int, phase: Phase, model_ids: tuple[int, ...]) -> None:
        self.announced.append((epoch, phase, model_ids))

    async def register(self) -> "Rig":
        async with self.database.transaction() as connection:
            for name, driver in self.drivers.items():
                self.ids[name] = await pins.register(connection, await driver.identify())
        return self

    async def want(self, *names: str) -> int:
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, "cpu:0")
            wanted = [self.ids[name] for name in names]
            epoch = await residencies.insert_wanted(connection, "cpu:0", newest.epoch if newest else 0, wanted, "test")
        assert epoch is not None
        return epoch

    async def flip(self, *names: str) -> int:
        epoch = await self.want(*names)
        await self.reconciler.reconcile()
        return epoch

    def send(self, epoch: int, *calls: tuple[int, str]) -> "asyncio.Task[list[Completion]]":
        made = [
            ModelCall(id=n, model_id=self.ids[name], prompt=str(n), decoding=Decoding(), seed=0) for n, name in calls
        ]

        async def run() -> list[Completion]:
            request = RunRequest(epoch=epoch, calls=tuple(made))
            found = [each async for ended in self.guard.run(request) for each in ended]
            return sorted(found, key=lambda each: each.id)

        return asyncio.create_task(run())

    def server(self, name: str) -> PuppetServer:
        return self.drivers[name].servers[-1]

    async def row(self, epoch: int) -> tuple[str, str]:
        ((state, reason),) = await rows(
            self.database, "SELECT state, COALESCE(reason, '') FROM residencies WHERE epoch = :e", e=epoch
        )
        return str(state), str(reason)


@pytest.fixture
async def rig(database: Database) -> Rig:
    return await Rig(database).register()


async def test_a_wanted_residency_is_loaded_verified_and_opened(rig: Rig) -> None:
    epoch = await rig.flip("judge")
    judge = rig.ids["judge"]
    assert (rig.reconciler.state, rig.guard.epoch) == (FlipState.OPEN, epoch)
    assert rig.announced == [(epoch, Phase.LOADING, ()), (epoch, Phase.OPEN, (judge,))]
    ((state, opened, closed, servers, measured),) = await rows(
        rig.database, "SELECT state, opened_at IS NOT NULL, closed_at, servers, measured FROM residencies"
    )
    assert (state, opened, closed) == ("open", True, None)
    assert [(entry["model"], entry["name"], entry["pid"]) for entry in servers] == [(judge, "judge", 1)]  # type: ignore[attr-defined]
    assert measured == {"memory_mib": {str(judge): 42.0}}


async def test_without_a_new_wish_nothing_happens(rig: Rig) -> None:
    await rig.flip("judge")
    rig.announced.clear()
    for _ in range(3):
        await rig.reconciler.reconcile()
    assert rig.announced == []
    assert len(rig.drivers["judge"].servers) == 1


async def test_a_flip_waits_for_calls_in_flight_and_ends_them_inside_their_residency(rig: Rig) -> None:
    first = await rig.flip("judge")
    running = rig.send(first, (1, "judge"))
    await rig.server("judge").has(1)
    second = await rig.want("generator")
    flipping = asyncio.create_task(rig.reconciler.reconcile())
    with anyio.fail_after(30):
        while (await rig.row(second))[0] != "draining":
            assert not flipping.done()
    with pytest.raises(StaleEpoch):
        await rig.send(first, (2, "judge"))
    assert (await rig.row(first))[0] == "open"
    assert rig.drivers["generator"].servers == []
    rig.server("judge").answer()
    await flipping
    (done,) = await running
    ((opened, closed),) = await rows(
        rig.database, "SELECT opened_at, closed_at FROM residencies WHERE epoch = :e", e=first
    )
    ((reopened,),) = await rows(rig.database, "SELECT opened_at FROM residencies WHERE epoch = :e", e=second)
    stamps = [opened, done.started_at, done.ended_at, closed, reopened]
    assert all(isinstance(stamp, datetime) for stamp in stamps)
    assert stamps == sorted(stamps)  # type: ignore[type-var]
    assert done.end is End.ANSWERED
    assert [await rig.row(epoch) for epoch in (first, second)] == [("closed", ""), ("open", "")]
    assert not rig.drivers["judge"].servers[0].alive


async def test_a_drain_that_takes_too_long_gives_the_calls_back(database: Database) -> None:
    rig = await Rig(database, Device(budget_mib=160, drain_timeout_s=0.01)).register()
    first = await rig.flip("judge")
    running = rig.send(first, (1, "judge"))
    await rig.server("judge").has(1)
    second = await rig.flip("generator")
    assert [each.end for each in await running] == [End.RELEASED]
    assert rig.drivers["judge"].servers[0].aborted == ["1"]
    assert [await rig.row(epoch) for epoch in (first, second)] == [("closed", ""), ("open", "")]


async def test_a_budget_that_refuses_both_models_together_says_so_with_figures(rig: Rig) -> None:
    first = await rig.flip("judge")
    epoch = await rig.flip("judge", "generator")
    state, reason = await rig.row(epoch)
    assert state == "quarantined"
    assert all(figure in reason for figure in ("generator, judge", "192 MiB", "160 MiB"))
    assert await rig.row(first) == ("closed", "")
    assert (rig.guard.epoch, rig.reconciler.state) == (None, FlipState.QUARANTINED)
    assert rig.announced[-1] == (epoch, Phase.QUARANTINED, ())
    assert rig.drivers["generator"].servers == []
    assert not any(server.alive for server in rig.drivers["judge"].servers)
    assert await rows(rig.database, "SELECT closed_at IS NOT NULL FROM residencies") == [(True,), (True,)]


async def test_both_models_are_resident_together_where_the_budget_allows_it(database: Database) -> None:
    rig = await Rig(database, Device(budget_mib=2 * MIB, residency="together")).register()
    epoch = await rig.flip("judge", "generator")
    running = rig.send(epoch, (1, "judge"), (2, "generator"))
    for name in ("judge", "generator"):
        await rig.server(name).has(1)
        rig.server(name).answer()
    assert [each.end for each in await running] == [End.ANSWERED, End.ANSWERED]


async def test_a_residency_without_models_empties_the_device(rig: Rig) -> None:
    first = await rig.flip("judge")
    running = rig.send(first, (1, "judge"))
    await rig.server("judge").has(1)
    epoch = await rig.want()
    flipping = asyncio.create_task(rig.reconciler.reconcile())
    with anyio.fail_after(30):
        while (await rig.row(epoch))[0] != "draining":
            assert not flipping.done()
    rig.server("judge").answer()
    await flipping
    assert [each.end for each in await running] == [End.ANSWERED]
    assert [await rig.row(each) for each in (first, epoch)] == [("closed", ""), ("open", "")]
    assert not any(server.alive for server in rig.drivers["judge"].servers)
    assert rig.announced[-1] == (epoch, Phase.OPEN, ())
    with pytest.raises(StaleEpoch):
        await rig.send(epoch, (2, "judge"))
    assert (await rig.row(await rig.flip("generator")))[0] == "open"


async def test_a_quarantined_device_opens_again_when_the_next_wish_can_be_met(rig: Rig) -> None:
    await rig.flip("judge", "generator")
    epoch = await rig.flip("generator")
    assert await rig.row(epoch) == ("open", "")
    assert rig.guard.epoch == epoch


async def test_calls_wait_for_a_device_that_cannot_be_loaded_until_it_opens(rig: Rig) -> None:
    outages = "SELECT model_id, what, said, since, extract(epoch FROM next_try - tried_at)::int FROM outages"
    judge, driver = rig.ids["judge"], rig.drivers["judge"]
    driver.refuses = "Ollama is away"
    found = []
    for _ in range(8):
        await rig.flip("judge")
        found += await rows(rig.database, outages)
    assert {row[:4] for row in found} == {(judge, "device cpu:0", "load: Ollama is away", found[0][3])}
    assert [row[4] for row in found] == [10, 20, 30, 40, 50, 60, 60, 60]
    driver.refuses = None
    assert (await rig.row(await rig.flip("judge")))[0] == "open"
    assert await rows(rig.database, outages) == []


async def test_a_model_file_that_was_replaced_is_not_served(rig: Rig) -> None:
    rig.drivers["judge"].digest = "v2"
    epoch = await rig.flip("judge")
    state, reason = await rig.row(epoch)
    assert state == "quarantined"
    assert "'judge'" in reason
    assert "restart the guard" in reason
    assert rig.drivers["judge"].servers == []  # a load would be in vain


async def test_a_model_file_that_is_replaced_while_it_is_loaded_is_not_served(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = rig.drivers["judge"]
    start = driver.start

    async def replaced(parallel: int | None = None) -> PuppetServer:
        driver.digest = "v2"
        return await start(parallel)

    monkeypatch.setattr(driver, "start", replaced)
    state, reason = await rig.row(await rig.flip("judge"))
    assert state == "quarantined"
    assert "restart the guard" in reason
    assert not rig.server("judge").alive


def refuses(rig: Rig) -> None:
    rig.drivers["generator"].refuses = "no memory left"


def stillborn(rig: Rig) -> None:
    rig.drivers["generator"].stillborn = True


def unknown(rig: Rig) -> None:
    del rig.drivers["generator"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (refuses, "load: no memory left"),
        (stillborn, "verify_resident: the server of 'generator' died"),
        (unknown, "verify_free: this guard does not serve generator"),
    ],
)
async def test_a_failed_flip_is_quarantined_with_its_step_and_frees_what_it_loaded(
    database: Database, spoil: Callable[[Rig], None], said: str
) -> None:
    rig = await Rig(database, Device(budget_mib=1000)).register()
    spoil(rig)
    epoch = await rig.flip("judge", "generator")
    state, reason = await rig.row(epoch)
    assert state == "quarantined"
    assert said in reason
    assert rig.guard.epoch is None
    assert not any(server.alive for driver in rig.drivers.values() for server in driver.servers)


async def test_a_server_that_survives_its_stop_is_not_loaded_over(rig: Rig) -> None:
    await rig.flip("judge")
    rig.server("judge").immortal = True
    epoch = await rig.flip("generator")
    state, reason = await rig.row(epoch)
    assert state == "quarantined"
    assert "model servers 1 are still running" in reason
    assert rig.drivers["generator"].servers == []


async def test_every_server_that_was_started_is_an_entry_of_its_residency(rig: Rig) -> None:
    for name in ("judge", "generator", "judge"):
        await rig.flip(name)
    rig.drivers["generator"].refuses = "not today"
    await rig.flip("generator")
    entries = await rows(rig.database, "SELECT jsonb_array_length(servers) FROM residencies ORDER BY epoch")
    assert entries == [(1,), (1,), (1,), (0,)]
    assert sum(len(driver.servers) for driver in rig.drivers.values()) == 3


async def test_a_server_that_dies_closes_its_residency(rig: Rig) -> None:
    epoch = await rig.flip("judge")
    running = rig.send(epoch, (1, "judge"))
    await rig.server("judge").has(1)
    rig.server("judge").die()
    await rig.reconciler.reconcile()
    assert [each.end for each in await running] == [End.LAPSED]
    assert await rig.row(epoch) == ("closed", "server_exit")
    assert (rig.reconciler.state, rig.guard.epoch) == (FlipState.CLOSED, None)
    with pytest.raises(StaleEpoch):
        await rig.send(epoch, (2, "judge"))
    again = await rig.flip("judge")
    assert await rig.row(again) == ("open", "")


async def test_the_death_of_one_server_does_not_charge_the_calls_of_another(database: Database) -> None:
    rig = await Rig(database, Device(budget_mib=2 * MIB)).register()
    epoch = await rig.flip("judge", "generator")
    running = rig.send(epoch, (1, "judge"), (2, "generator"))
    await rig.server("judge").has(1)
    await rig.server("generator").has(1)
    rig.server("judge").die()
    await rig.reconciler.reconcile()
    assert [each.end for each in await running] == [End.LAPSED, End.RELEASED]


@pytest.mark.parametrize("state", ["draining", "unloading", "loading", "open"])
async def test_a_guard_closes_what_a_dead_one_left(rig: Rig, state: str) -> None:
    epoch = await rig.want("judge")
    async with rig.database.transaction() as connection:
        await residencies.set_state(connection, epoch, state, rig.clock.now())
    await rig.reconciler.take_over()
    assert await rig.row(epoch) == ("closed", "guard_restart")
    await rig.reconciler.reconcile()
    assert rig.guard.epoch is None
    assert rig.drivers["judge"].servers == []


async def test_a_guard_begins_after_everything_that_another_has_stamped(rig: Rig) -> None:
    epoch = await rig.want("judge")
    ahead = datetime.now(UTC) + timedelta(hours=1)
    async with rig.database.transaction() as connection:
        await residencies.set_state(connection, epoch, "open", ahead)
    await rig.reconciler.take_over()
    async with rig.database.transaction() as connection:
        left = await residencies.find_newest(connection, DEVICE.id)
    assert left is not None
    assert left.closed_at is not None
    assert left.closed_at >= ahead


async def test_a_wish_that_no_guard_has_begun_is_carried_out_by_the_next_one(rig: Rig) -> None:
    epoch = await rig.want("judge")
    await rig.reconciler.take_over()
    await rig.reconciler.reconcile()
    assert await rig.row(epoch) == ("open", "")


async def test_a_guard_leaves_other_devices_alone(rig: Rig) -> None:
    async with rig.database.transaction() as connection:
        other = await residencies.insert_wanted(connection, "cpu:1", 0, [rig.ids["judge"]], "test")
        assert other is not None
        await residencies.set_state(connection, other, "open", rig.clock.now())
    await rig.reconciler.take_over()
    assert (await rig.row(other))[0] == "open"


async def test_a_guard_that_is_stopped_closes_its_residency(rig: Rig) -> None:
    epoch = await rig.flip("judge")
    await rig.reconciler.close()
    assert await rig.row(epoch) == ("closed", "guard_stopped")
    assert not rig.server("judge").alive
    assert rig.guard.epoch is None


class Outage:
    def __init__(self, state: str, times: int) -> None:
        self._state = state
        self._left = times
        self._move = residencies.set_state

    async def move(self, connection: object, epoch: int, state: str, at: datetime, reason: str | None = None) -> None:
        if state == self._state and self._left:
            self._left -= 1
            raise ConnectionError("the database is away")
        await self._move(connection, epoch, state, at, reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "state",
    [
        "draining",
        "closed",
        "unloading",
        "loading",
        "open",
    ],
)
async def test_a_database_that_is_away_in_any_step_leads_to_quarantine(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    first = await rig.flip("judge")
    monkeypatch.setattr(residencies, "set_state", Outage(state, 1).move)
    epoch = await rig.flip("generator")
    for _ in range(3):
        await rig.reconciler.reconcile()
    found, reason = await rig.row(epoch)
    assert found == "quarantined"
    assert "the database is away" in reason
    assert (await rig.row(first))[0] == "closed"
    assert rig.guard.epoch is None


async def test_a_quarantine_that_could_not_be_written_is_written_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.drivers["judge"].refuses = "no memory left"
    monkeypatch.setattr(residencies, "set_state", Outage("quarantined", 1).move)
    epoch = await rig.flip("judge")
    assert (await rig.row(epoch))[0] == "loading"
    await rig.reconciler.reconcile()
    assert (await rig.row(epoch))[0] == "quarantined"
