"""Flips between models: of an Ollama, as spans, on measured memory, and with the next model read ahead."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from services.guard import app as app_module
from services.guard import guard
from services.guard.app import create_app
from services.guard.drivers import ollama, ports
from services.guard.drivers.ollama import OllamaDriver, list_tags
from services.guard.guard import Guard, ServedModel, StaleEpoch, Warmer
from services.guard.memory import DeviceProcess, GuardClock, MemoryReading, NotMeasured
from services.guard.reconciler import Reconciler
from shared.calls import Completion, Decoding, End, ModelCall, RunRequest
from shared.lease import residencies
from shared.lease.lease import Phase
from shared.lease.policy import FlipState
from shared.runtime import pins
from shared.settings import Device, Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import ChatServer, Reply
from tests.doubles.ollama_server import Ollama, ollama_server
from tests.doubles.puppets import PuppetDriver, PuppetServer, StepClock
from tests.integration.scene import furnish, model, rows, run_sql, submit_job
from tests.integration.scheduling import DEVICE as SCHEDULING_DEVICE
from tests.integration.scheduling import advance
from tests.integration.test_reconciler import MIB, Rig
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio


# A model that is not there when the guard starts is registered once it is.


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


# Flips between models of one Ollama by the real reconciler, on real rows; the server is a double of its protocol.

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"
RESET = Reply(missing=1, reset=True)


class OllamaRig:
    def __init__(self, database: Database, double: Ollama, http: ChatServer) -> None:
        self.database, self.double, self.http = database, double, http
        self.device = Device(id="gpu:0", budget_mib=800, free_timeout_s=0.2)
        self.configured = {
            tag: Model(driver="ollama", url=http.url, context=64, parallel=4, footprint_mib=400)
            for tag in (JUDGE, GENERATOR)
        }
        self.ids: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        ours = list_tags(self.configured)
        drivers = {name: OllamaDriver(name, model, self.device, ours) for name, model in self.configured.items()}
        self.drivers = drivers
        self.guard = Guard(self.device.id, StepClock())  # type: ignore[arg-type]
        self.reconciler = Reconciler(self.database, self.guard, self.device, self.configured, drivers, self._announce)

    async def _announce(self, epoch: int, phase: Phase, model_ids: tuple[int, ...]) -> None:
        pass

    async def register(self) -> "Rig":
        async with self.database.transaction() as connection:
            for name, driver in self.drivers.items():
                self.ids[name] = await pins.register(connection, await driver.identify())
        return self

    async def flip(self, *names: str) -> int:
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, self.device.id)
            wanted = [self.ids[name] for name in names]
            epoch = await residencies.insert_wanted(
                connection, self.device.id, newest.epoch if newest else 0, wanted, "test"
            )
        assert epoch is not None
        await self.reconciler.reconcile()
        return epoch

    async def ask(self, epoch: int, *names: str) -> list[Completion]:
        calls = tuple(
            ModelCall(id=n, model_id=self.ids[name], prompt=f"prompt {n}", decoding=Decoding(), seed=0)
            for n, name in enumerate(names)
        )
        found = [each async for each in self.guard.run(RunRequest(epoch=epoch, calls=calls))]
        return sorted((each for some in found for each in some), key=lambda each: each.id)

    async def states(self) -> list[tuple[object, ...]]:
        return await rows(self.database, "SELECT state, COALESCE(reason, '') FROM residencies ORDER BY epoch")

    def resident(self) -> list[str]:
        return sorted(runner.name for runner in self.double.runners.values())

    async def noticed(self) -> None:
        with anyio.fail_after(60):
            while self.reconciler.state is FlipState.OPEN:
                await self.reconciler.reconcile()
                await asyncio.sleep(0.01)


@pytest.fixture
async def ollama_rig(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OllamaRig]:
    monkeypatch.setattr(ollama, "POLL_S", 0.01)
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 0.0)
    monkeypatch.setattr(ollama, "PROBE_S", 0.01)
    async with ollama_server(JUDGE, GENERATOR) as (double, http):
        made = await OllamaRig(database, double, http).register()
        yield made
        double.keeps = False
        await made.reconciler.close()


async def test_flips_there_and_back_load_one_model_at_a_time(ollama_rig: OllamaRig) -> None:
    for name in (JUDGE, GENERATOR, JUDGE):
        epoch = await ollama_rig.flip(name)
        assert ollama_rig.resident() == [name]
        done = await ollama_rig.ask(epoch, *[name] * 6)
        assert {each.end for each in done} == {End.ANSWERED}
        assert done[0].text == ollama_rig.double.answer("prompt 0")
        assert (done[0].prompt_tokens, done[0].prompt_ms) == (2, 3.0)
    assert ollama_rig.double.loads == [JUDGE, GENERATOR, JUDGE]
    entries = await rows(ollama_rig.database, "SELECT servers, measured FROM residencies ORDER BY epoch")
    assert [[entry["name"] for entry in servers] for servers, _ in entries] == [[JUDGE], [GENERATOR], [JUDGE]]  # type: ignore[attr-defined]
    assert [measured for _, measured in entries] == [
        {"memory_mib": {str(ollama_rig.ids[name]): 400.0}} for name in (JUDGE, GENERATOR, JUDGE)
    ]


async def test_both_are_resident_together_where_the_server_holds_them(ollama_rig: OllamaRig) -> None:
    epoch = await ollama_rig.flip(JUDGE, GENERATOR)
    done = await ollama_rig.ask(epoch, JUDGE, GENERATOR, JUDGE)
    assert {each.end for each in done} == {End.ANSWERED}
    assert ollama_rig.resident() == sorted([JUDGE, GENERATOR])
    assert ollama_rig.double.loads == [JUDGE, GENERATOR]


async def test_a_server_that_holds_one_only_is_found_out(ollama_rig: OllamaRig) -> None:
    ollama_rig.double.most = 1
    await ollama_rig.flip(JUDGE, GENERATOR)
    await ollama_rig.noticed()
    ((state, _),) = await ollama_rig.states()
    assert state in ("quarantined", "closed")
    with pytest.raises(StaleEpoch):
        await ollama_rig.ask(1, JUDGE)
    assert ollama_rig.resident() == []


async def test_a_model_that_is_not_unloaded_is_not_loaded_over(ollama_rig: OllamaRig) -> None:
    await ollama_rig.flip(JUDGE)
    ollama_rig.double.keeps = True
    await ollama_rig.flip(GENERATOR)
    assert (await ollama_rig.states())[-1][0] == "quarantined"
    assert f"model servers {JUDGE} are still running" in str((await ollama_rig.states())[-1][1])
    assert ollama_rig.double.loads == [JUDGE]
    ollama_rig.double.keeps = False
    await ollama_rig.flip(GENERATOR)
    assert (await ollama_rig.states())[-1] == ("open", "")
    assert ollama_rig.resident() == [GENERATOR]


async def test_a_tag_that_was_pulled_again_is_quarantined(ollama_rig: OllamaRig) -> None:
    ollama_rig.double.pull(JUDGE, "v2")
    await ollama_rig.flip(JUDGE)
    ((state, reason),) = await ollama_rig.states()
    assert state == "quarantined"
    assert f"'{JUDGE}' is not the one jobs were submitted with" in str(reason)
    assert ollama_rig.double.loads == []  # it is refused before it is loaded


async def test_a_stranger_ends_the_residency_and_keeps_the_next_from_opening(ollama_rig: OllamaRig) -> None:
    await ollama_rig.flip(JUDGE)
    ollama_rig.double.pull("llama3:8b")
    ollama_rig.double.load("llama3:8b")
    await ollama_rig.noticed()
    assert await ollama_rig.states() == [("closed", "server_exit")]
    await ollama_rig.flip(JUDGE)
    assert "ollama stop llama3:8b" in str((await ollama_rig.states())[-1][1])
    ollama_rig.double.runners.clear()
    epoch = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(epoch, JUDGE)] == [End.ANSWERED]


async def test_what_keeps_a_model_off_the_server_is_seen_until_it_is_gone(ollama_rig: OllamaRig) -> None:
    ollama_rig.double.pull("llama3:8b")
    ollama_rig.double.load("llama3:8b")
    await ollama_rig.flip(JUDGE)
    posted = len(ollama_rig.double.bodies)
    assert "ollama stop llama3:8b" in str(await ollama_rig.reconciler.find_obstacle())
    respond = ollama_rig.http.respond
    ollama_rig.http.respond = lambda _: RESET
    assert "no Ollama at" in str(await ollama_rig.reconciler.find_obstacle())
    ollama_rig.http.respond = respond
    ollama_rig.double.runners.clear()
    assert await ollama_rig.reconciler.find_obstacle() is None
    assert len(ollama_rig.double.bodies) == posted
    await ollama_rig.flip(JUDGE)
    ollama_rig.double.keeps = True
    await ollama_rig.flip(GENERATOR)
    assert f"does not unload {JUDGE}" in str(await ollama_rig.reconciler.find_obstacle())
    ollama_rig.double.runners.clear()
    assert await ollama_rig.reconciler.find_obstacle() is None


async def test_a_stranger_leaves_no_suspects(ollama_rig: OllamaRig) -> None:
    epoch = await ollama_rig.flip(JUDGE)
    ollama_rig.double.chat = [Reply(hang=True)]
    running = asyncio.create_task(ollama_rig.ask(epoch, JUDGE))
    with anyio.fail_after(60):
        while ollama_rig.double.chat:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
    ollama_rig.double.pull("llama3:8b")
    ollama_rig.double.load("llama3:8b")
    await ollama_rig.noticed()
    assert [each.end for each in await running] == [End.RELEASED]


async def test_a_stranger_on_a_server_with_room_for_one_is_named_and_leaves_no_suspects(ollama_rig: OllamaRig) -> None:
    epoch = await ollama_rig.flip(JUDGE)
    ollama_rig.double.most = 1
    ollama_rig.double.chat = [Reply(hang=True)]
    running = asyncio.create_task(ollama_rig.ask(epoch, JUDGE))
    with anyio.fail_after(60):
        while ollama_rig.double.chat:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
    ollama_rig.double.runners.clear()
    await ollama_rig.noticed()
    assert [each.end for each in await running] == [End.RELEASED]
    ollama_rig.double.pull("llama3:8b")
    ollama_rig.double.load("llama3:8b")
    await ollama_rig.flip(JUDGE)
    assert "llama3:8b, not for this guard: ollama stop llama3:8b" in str((await ollama_rig.states())[-1][1])


@pytest.mark.parametrize(
    "changes", [{"system": "Be brief."}, {"parameters": (("top_k", 1),)}, {"template": "{{ .Prompt }}"}]
)
async def test_nothing_that_was_said_to_another_prompt_is_filed_as_the_pinned_model(
    ollama_rig: OllamaRig, changes: dict[str, object]
) -> None:
    ollama.PROBE_S = 3600
    epoch = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(epoch, JUDGE, JUDGE)] == [End.ANSWERED, End.ANSWERED]
    before = ollama_rig.double.manifest(JUDGE)
    ollama_rig.double.create(JUDGE, **changes)
    done = await ollama_rig.ask(epoch, *[JUDGE] * 6)
    assert {(each.end, each.text) for each in done} == {(End.RELEASED, "")}
    await ollama_rig.noticed()
    await ollama_rig.flip(JUDGE)
    assert "is not the one jobs were submitted with" in str((await ollama_rig.states())[-1][1])
    ollama_rig.double.put(JUDGE, before)
    again = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_calls_of_a_model_that_was_removed_go_back_and_the_flip_says_what_is_missing(
    ollama_rig: OllamaRig,
) -> None:
    ollama.PROBE_S = 3600
    epoch = await ollama_rig.flip(JUDGE)
    digest = ollama_rig.double.pulled.pop(JUDGE)
    done = await ollama_rig.ask(epoch, *[JUDGE] * 6)
    assert {(each.end, each.failure) for each in done} == {(End.RELEASED, None)}
    await ollama_rig.noticed()
    await ollama_rig.flip(JUDGE)
    state, reason = (await ollama_rig.states())[-1]
    assert state == "quarantined"
    assert f"has no model '{JUDGE}'" in str(reason)
    ollama_rig.double.pulled[JUDGE] = digest
    again = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_a_runner_that_dies_under_its_calls_costs_one_load_that_is_counted(ollama_rig: OllamaRig) -> None:
    epoch = await ollama_rig.flip(JUDGE)
    ollama_rig.double.wrong.left["die"] = 1
    done = await ollama_rig.ask(epoch, *[JUDGE] * 12)
    assert End.LAPSED in {each.end for each in done}
    assert {each.failure for each in done} == {None}
    await ollama_rig.noticed()
    again = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_a_call_that_would_hide_a_reload_goes_back_and_ends_the_residency(ollama_rig: OllamaRig) -> None:
    ollama.PROBE_S = 3600
    epoch = await ollama_rig.flip(JUDGE)
    ollama_rig.double.runners.clear()
    (done,) = await ollama_rig.ask(epoch, JUDGE)
    assert done.end is End.RELEASED
    await ollama_rig.noticed()
    assert await ollama_rig.states() == [("closed", "server_exit")]
    assert ollama_rig.resident() == []
    ((reloads,),) = await rows(ollama_rig.database, "SELECT measured -> 'reloads' FROM residencies")
    assert reloads == {str(ollama_rig.ids[JUDGE]): 1}


async def test_the_calls_of_a_server_that_went_away_go_back(ollama_rig: OllamaRig) -> None:
    epoch = await ollama_rig.flip(JUDGE)
    respond = ollama_rig.http.respond
    ollama_rig.http.respond = lambda _: RESET
    (done,) = await ollama_rig.ask(epoch, JUDGE)
    assert done.end is End.RELEASED
    await ollama_rig.noticed()
    ollama_rig.double.runners.clear()
    ollama_rig.http.respond = respond
    again = await ollama_rig.flip(JUDGE)
    assert [each.end for each in await ollama_rig.ask(again, JUDGE)] == [End.ANSWERED]
    assert await ollama_rig.states() == [("closed", "server_exit"), ("open", "")]


async def test_what_a_killed_guard_left_is_unloaded_by_the_next(ollama_rig: OllamaRig) -> None:
    await ollama_rig.flip(JUDGE)
    killed = ollama_rig.reconciler
    ollama._loaded[ollama_rig.http.url].clear()
    ollama_rig.restart()
    await ollama_rig.reconciler.take_over()
    assert ollama_rig.double._resident() == []
    await ollama_rig.flip(GENERATOR)
    assert ollama_rig.resident() == [GENERATOR]
    assert [state for state, _ in await ollama_rig.states()] == ["closed", "open"]
    for server in killed._servers.values():  # what a dead process would not do
        await server.stop()


async def test_a_guard_that_stops_leaves_nothing_on_the_server(ollama_rig: OllamaRig) -> None:
    await ollama_rig.flip(JUDGE)
    await ollama_rig.reconciler.close()
    assert ollama_rig.resident() == []
    assert await ollama_rig.states() == [("closed", "guard_stopped")]


# Flips as spans of the guard: a trace each, a span a step, with cause and outcome.


@pytest.fixture
async def rig(database: Database) -> Rig:
    return await Rig(database).register()


async def test_a_flip_shows_its_steps_and_loads(rig: Rig) -> None:
    with tracing() as spans:
        epoch = await rig.flip("judge")
        await rig.flip("generator")
    first, second = spans.named("flip wanted")
    assert (first.attributes["mathrag.cause"], first.attributes["mathrag.device"]) == ("test", "cpu:0")
    assert (first.attributes["mathrag.epoch"], second.attributes["mathrag.epoch"]) == (epoch, epoch + 1)
    assert (first.parent, first.context.trace_id == second.context.trace_id) == (None, False)
    steps = [span for span in spans.all() if span.parent and span.parent.span_id == second.context.span_id]
    assert {"drain", "unload", "verify_free", "load", "verify_resident", "open"} <= {step.name for step in steps}
    (load,) = spans.named("load generator")
    assert load.parent.span_id in {step.context.span_id for step in steps}


async def test_a_flip_that_fails_says_at_which_step(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with tracing() as spans, caplog.at_level(logging.CRITICAL):
        await rig.flip("judge", "generator")
    flip = spans.one("flip wanted")
    assert flip.attributes["error.type"] == "quarantined"
    assert spans.one("verify_free").attributes["error.type"] == "DriverError"
    assert not spans.named("load")


async def test_a_server_that_dies_is_a_flip_with_that_cause(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with tracing() as spans, caplog.at_level(logging.CRITICAL):
        epoch = await rig.flip("judge")
        rig.server("judge").die()
        await rig.reconciler.reconcile()
    flip = spans.one("flip server_exit")
    assert (flip.attributes["mathrag.cause"], flip.attributes["mathrag.epoch"]) == ("server_exit", epoch)


# Flips of the real reconciler on real rows, on a device whose memory the test decides and whose time it counts.


DEVICE = Device(budget_mib=160, reserve_mib=10, free_timeout_s=2)
TOTAL = 200.0
"""Room for one model of 96 MiB, and for two never."""


class PuppetMemory:
    def __init__(self, measured_rig: Rig) -> None:
        self._rig = measured_rig
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
async def measured_rig(database: Database) -> MeasuredRig:
    made = MeasuredRig(database)
    await made.register()
    return made


async def test_a_load_waits_for_memory_that_comes_back_late(measured_rig: MeasuredRig) -> None:
    await measured_rig.flip("judge")
    measured_rig.memory.lags = [96.0] * 7
    epoch = await measured_rig.flip("generator")
    assert (await measured_rig.row(epoch))[0] == "open"
    assert measured_rig.memory.lags == []
    assert measured_rig.drivers["judge"].servers[0].stops == 1
    assert measured_rig.drivers["judge"].taken_over == 0


async def test_memory_that_does_not_come_back_quarantines_and_says_how_much_is_missing(
    measured_rig: MeasuredRig,
) -> None:
    await measured_rig.flip("judge")
    measured_rig.memory.lags = [96.0] * 1000
    epoch = await measured_rig.flip("generator")
    state, reason = await measured_rig.row(epoch)
    assert state == "quarantined"
    assert "verify_free: 2 MiB are missing: 104 of 200 are free, but 96 and a reserve of 10 are needed" in reason
    assert measured_rig.drivers["judge"].taken_over == 1
    assert measured_rig.drivers["generator"].servers == []
    measured_rig.memory.lags.clear()
    assert (await measured_rig.row(await measured_rig.flip("generator")))[0] == "open"


async def test_a_server_that_survives_its_stop_is_stopped_again_before_the_device_is_given_up(
    measured_rig: MeasuredRig,
) -> None:
    await measured_rig.flip("judge")
    judge = measured_rig.server("judge")
    judge.immortal = True
    epoch = await measured_rig.flip("generator")
    assert "2 MiB are missing" in (await measured_rig.row(epoch))[1]
    assert judge.stops >= 2
    judge.immortal = False
    assert (await measured_rig.row(await measured_rig.flip("generator")))[0] == "open"
    assert not judge.alive


async def test_a_stranger_in_the_way_is_named(measured_rig: MeasuredRig) -> None:
    measured_rig.memory.stranger = 150
    epoch = await measured_rig.flip("judge")
    assert "somebody (pid 6000000) holds 150 MiB" in (await measured_rig.row(epoch))[1]
    assert measured_rig.drivers["judge"].servers == []
    measured_rig.memory.stranger = 0
    assert (await measured_rig.row(await measured_rig.flip("judge")))[0] == "open"


async def test_what_is_in_the_way_of_a_quarantined_device_is_seen_without_a_load(measured_rig: MeasuredRig) -> None:
    measured_rig.memory.stranger = 150
    await measured_rig.flip("judge")
    assert "somebody (pid 6000000) holds 150 MiB" in str(await measured_rig.reconciler.find_obstacle())
    measured_rig.memory.stranger, measured_rig.memory.lost = 0, "NVML: GPU is lost"
    assert await measured_rig.reconciler.find_obstacle() == "NVML: GPU is lost"
    measured_rig.memory.lost, judge = None, measured_rig.drivers["judge"]
    judge.missing = True
    assert await measured_rig.reconciler.find_obstacle() == "no model file of judge"
    judge.missing, judge.digest = False, "v2"
    assert "is not the one jobs were submitted with" in str(await measured_rig.reconciler.find_obstacle())
    judge.digest = "v1"
    assert await measured_rig.reconciler.find_obstacle() is None
    assert judge.servers == []


async def test_what_the_plan_expects_is_what_must_be_free(measured_rig: MeasuredRig) -> None:
    measured_rig.memory.stranger = 38
    async with measured_rig.database.transaction() as connection:
        plan = {"predicted_mib": 153}
        epoch = await residencies.insert_wanted(connection, "cpu:0", 0, [measured_rig.ids["judge"]], "test", plan)
    await measured_rig.reconciler.reconcile()
    assert epoch is not None
    assert "1 MiB are missing: 162 of 200 are free, but 153 and a reserve of 10" in (await measured_rig.row(epoch))[1]


async def test_a_load_beyond_the_budget_is_freed_again_and_its_figures_stay(measured_rig: MeasuredRig) -> None:
    measured_rig.memory.each = 170
    epoch = await measured_rig.flip("judge")
    assert "170 MiB were loaded, the budget is 160 MiB" in (await measured_rig.row(epoch))[1]
    assert not measured_rig.server("judge").alive
    assert (await measured_rig.measured(epoch))["loaded_mib"] == 170


async def test_a_residency_remembers_the_most_that_it_held(measured_rig: MeasuredRig) -> None:
    epoch = await measured_rig.flip("judge")
    measured_rig.memory.each = 120
    await measured_rig.look_until(FlipState.OPEN)
    measured_rig.memory.each, measured_rig.memory.stranger = 100, 50
    await measured_rig.look_until(FlipState.OPEN)
    found = await measured_rig.measured(epoch)
    del found["memory_mib"]
    assert found == {
        "before_mib": 0, "loaded_mib": 96, "budget_mib": 160, "peak_mib": 120, "strangers_mib": 50,
    }  # fmt: skip


async def test_a_device_that_is_lost_ends_its_residency_and_gives_the_calls_back(measured_rig: MeasuredRig) -> None:
    epoch = await measured_rig.flip("judge")
    running = measured_rig.send(epoch, (1, "judge"))
    await measured_rig.server("judge").has(1)
    measured_rig.memory.lost = "GPU-1 fell off the bus"
    await measured_rig.look_until(FlipState.QUARANTINED)
    assert [each.end for each in await running] == [End.RELEASED]
    assert await measured_rig.row(epoch) == ("quarantined", "GPU-1 fell off the bus")
    assert not measured_rig.server("judge").alive
    with pytest.raises(StaleEpoch):
        await measured_rig.send(epoch, (2, "judge"))
    again = await measured_rig.flip("judge")
    assert await measured_rig.row(again) == ("quarantined", "verify_free: GPU-1 fell off the bus")
    assert len(measured_rig.drivers["judge"].servers) == 1
    measured_rig.memory.lost = None
    assert (await measured_rig.row(await measured_rig.flip("judge")))[0] == "open"


async def test_a_device_that_is_emptied_needs_no_room(measured_rig: MeasuredRig) -> None:
    await measured_rig.flip("judge")
    measured_rig.memory.lost = "no driver"
    assert (await measured_rig.row(await measured_rig.flip()))[0] == "open"
    assert measured_rig.guard.epoch is not None


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
