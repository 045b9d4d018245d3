import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.drivers import ollama, ports
from services.guard.drivers.ollama import OllamaDriver, list_tags
from services.guard.guard import Guard, StaleEpoch
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
from tests.doubles.puppets import StepClock
from tests.integration.scene import rows

# A model that is not there when the guard starts is registered once it is.


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


# Flips between models of one Ollama by the real reconciler, on real rows; the server is a double of its protocol.

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"
RESET = Reply(missing=1, reset=True)


class Rig:
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
async def rig(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(ollama, "POLL_S", 0.01)
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 0.0)
    monkeypatch.setattr(ollama, "PROBE_S", 0.01)
    async with ollama_server(JUDGE, GENERATOR) as (double, http):
        made = await Rig(database, double, http).register()
        yield made
        double.keeps = False
        await made.reconciler.close()


async def test_flips_there_and_back_load_one_model_at_a_time(rig: Rig) -> None:
    for name in (JUDGE, GENERATOR, JUDGE):
        epoch = await rig.flip(name)
        assert rig.resident() == [name]
        done = await rig.ask(epoch, *[name] * 6)
        assert {each.end for each in done} == {End.ANSWERED}
        assert done[0].text == rig.double.answer("prompt 0")
        assert (done[0].prompt_tokens, done[0].prompt_ms) == (2, 3.0)
    assert rig.double.loads == [JUDGE, GENERATOR, JUDGE]
    entries = await rows(rig.database, "SELECT servers, measured FROM residencies ORDER BY epoch")
    assert [[entry["name"] for entry in servers] for servers, _ in entries] == [[JUDGE], [GENERATOR], [JUDGE]]  # type: ignore[attr-defined]
    assert [measured for _, measured in entries] == [
        {"memory_mib": {str(rig.ids[name]): 400.0}} for name in (JUDGE, GENERATOR, JUDGE)
    ]


async def test_both_are_resident_together_where_the_server_holds_them(rig: Rig) -> None:
    epoch = await rig.flip(JUDGE, GENERATOR)
    done = await rig.ask(epoch, JUDGE, GENERATOR, JUDGE)
    assert {each.end for each in done} == {End.ANSWERED}
    assert rig.resident() == sorted([JUDGE, GENERATOR])
    assert rig.double.loads == [JUDGE, GENERATOR]


async def test_a_server_that_holds_one_only_is_found_out(rig: Rig) -> None:
    rig.double.most = 1
    await rig.flip(JUDGE, GENERATOR)
    await rig.noticed()
    ((state, _),) = await rig.states()
    assert state in ("quarantined", "closed")
    with pytest.raises(StaleEpoch):
        await rig.ask(1, JUDGE)
    assert rig.resident() == []


async def test_a_model_that_is_not_unloaded_is_not_loaded_over(rig: Rig) -> None:
    await rig.flip(JUDGE)
    rig.double.keeps = True
    await rig.flip(GENERATOR)
    assert (await rig.states())[-1][0] == "quarantined"
    assert f"['{JUDGE}'] are still alive" in str((await rig.states())[-1][1])
    assert rig.double.loads == [JUDGE]
    rig.double.keeps = False
    await rig.flip(GENERATOR)
    assert (await rig.states())[-1] == ("open", "")
    assert rig.resident() == [GENERATOR]


async def test_a_tag_that_was_pulled_again_is_quarantined(rig: Rig) -> None:
    rig.double.pull(JUDGE, "v2")
    await rig.flip(JUDGE)
    ((state, reason),) = await rig.states()
    assert state == "quarantined"
    assert f"'{JUDGE}' is not the one jobs were submitted with" in str(reason)
    assert rig.double.loads == []  # it is refused before it is loaded


async def test_a_stranger_ends_the_residency_and_keeps_the_next_from_opening(rig: Rig) -> None:
    await rig.flip(JUDGE)
    rig.double.pull("llama3:8b")
    rig.double.load("llama3:8b")
    await rig.noticed()
    assert await rig.states() == [("closed", "server_exit")]
    await rig.flip(JUDGE)
    assert "ollama stop llama3:8b" in str((await rig.states())[-1][1])
    rig.double.runners.clear()
    epoch = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(epoch, JUDGE)] == [End.ANSWERED]


async def test_what_keeps_a_model_off_the_server_is_seen_until_it_is_gone(rig: Rig) -> None:
    rig.double.pull("llama3:8b")
    rig.double.load("llama3:8b")
    await rig.flip(JUDGE)
    posted = len(rig.double.bodies)
    assert "ollama stop llama3:8b" in str(await rig.reconciler.find_obstacle())
    respond = rig.http.respond
    rig.http.respond = lambda _: RESET
    assert "no Ollama at" in str(await rig.reconciler.find_obstacle())
    rig.http.respond = respond
    rig.double.runners.clear()
    assert await rig.reconciler.find_obstacle() is None
    assert len(rig.double.bodies) == posted
    await rig.flip(JUDGE)
    rig.double.keeps = True
    await rig.flip(GENERATOR)
    assert f"does not unload {JUDGE}" in str(await rig.reconciler.find_obstacle())
    rig.double.runners.clear()
    assert await rig.reconciler.find_obstacle() is None


async def test_a_stranger_leaves_no_suspects(rig: Rig) -> None:
    epoch = await rig.flip(JUDGE)
    rig.double.chat = [Reply(hang=True)]
    running = asyncio.create_task(rig.ask(epoch, JUDGE))
    with anyio.fail_after(60):
        while rig.double.chat:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
    rig.double.pull("llama3:8b")
    rig.double.load("llama3:8b")
    await rig.noticed()
    assert [each.end for each in await running] == [End.RELEASED]


async def test_a_stranger_on_a_server_with_room_for_one_is_named_and_leaves_no_suspects(rig: Rig) -> None:
    epoch = await rig.flip(JUDGE)
    rig.double.most = 1
    rig.double.chat = [Reply(hang=True)]
    running = asyncio.create_task(rig.ask(epoch, JUDGE))
    with anyio.fail_after(60):
        while rig.double.chat:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
    rig.double.runners.clear()
    await rig.noticed()
    assert [each.end for each in await running] == [End.RELEASED]
    rig.double.pull("llama3:8b")
    rig.double.load("llama3:8b")
    await rig.flip(JUDGE)
    assert "llama3:8b, not for this guard: ollama stop llama3:8b" in str((await rig.states())[-1][1])


@pytest.mark.parametrize(
    "changes", [{"system": "Be brief."}, {"parameters": (("top_k", 1),)}, {"template": "{{ .Prompt }}"}]
)
async def test_nothing_that_was_said_to_another_prompt_is_filed_as_the_pinned_model(
    rig: Rig, changes: dict[str, object]
) -> None:
    ollama.PROBE_S = 3600
    epoch = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(epoch, JUDGE, JUDGE)] == [End.ANSWERED, End.ANSWERED]
    before = rig.double.manifest(JUDGE)
    rig.double.create(JUDGE, **changes)
    done = await rig.ask(epoch, *[JUDGE] * 6)
    assert {(each.end, each.text) for each in done} == {(End.RELEASED, "")}
    await rig.noticed()
    await rig.flip(JUDGE)
    assert "is not the one jobs were submitted with" in str((await rig.states())[-1][1])
    rig.double.put(JUDGE, before)
    again = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_calls_of_a_model_that_was_removed_go_back_and_the_flip_says_what_is_missing(rig: Rig) -> None:
    ollama.PROBE_S = 3600
    epoch = await rig.flip(JUDGE)
    digest = rig.double.pulled.pop(JUDGE)
    done = await rig.ask(epoch, *[JUDGE] * 6)
    assert {(each.end, each.failure) for each in done} == {(End.RELEASED, None)}
    await rig.noticed()
    await rig.flip(JUDGE)
    state, reason = (await rig.states())[-1]
    assert state == "quarantined"
    assert f"has no model '{JUDGE}'" in str(reason)
    rig.double.pulled[JUDGE] = digest
    again = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_a_runner_that_dies_under_its_calls_costs_one_load_that_is_counted(rig: Rig) -> None:
    epoch = await rig.flip(JUDGE)
    rig.double.wrong.left["die"] = 1
    done = await rig.ask(epoch, *[JUDGE] * 12)
    assert End.LAPSED in {each.end for each in done}
    assert {each.failure for each in done} == {None}
    await rig.noticed()
    again = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(again, JUDGE)] == [End.ANSWERED]


async def test_a_call_that_would_hide_a_reload_goes_back_and_ends_the_residency(rig: Rig) -> None:
    ollama.PROBE_S = 3600
    epoch = await rig.flip(JUDGE)
    rig.double.runners.clear()
    (done,) = await rig.ask(epoch, JUDGE)
    assert done.end is End.RELEASED
    await rig.noticed()
    assert await rig.states() == [("closed", "server_exit")]
    assert rig.resident() == []
    ((reloads,),) = await rows(rig.database, "SELECT measured -> 'reloads' FROM residencies")
    assert reloads == {str(rig.ids[JUDGE]): 1}


async def test_the_calls_of_a_server_that_went_away_go_back(rig: Rig) -> None:
    epoch = await rig.flip(JUDGE)
    respond = rig.http.respond
    rig.http.respond = lambda _: RESET
    (done,) = await rig.ask(epoch, JUDGE)
    assert done.end is End.RELEASED
    await rig.noticed()
    rig.double.runners.clear()
    rig.http.respond = respond
    again = await rig.flip(JUDGE)
    assert [each.end for each in await rig.ask(again, JUDGE)] == [End.ANSWERED]
    assert await rig.states() == [("closed", "server_exit"), ("open", "")]


async def test_what_a_killed_guard_left_is_unloaded_by_the_next(rig: Rig) -> None:
    await rig.flip(JUDGE)
    killed = rig.reconciler
    ollama._loaded[rig.http.url].clear()
    rig.restart()
    await rig.reconciler.take_over()
    assert rig.double._resident() == []
    await rig.flip(GENERATOR)
    assert rig.resident() == [GENERATOR]
    assert [state for state, _ in await rig.states()] == ["closed", "open"]
    for server in killed._servers.values():  # what a dead process would not do
        await server.stop()


async def test_a_guard_that_stops_leaves_nothing_on_the_server(rig: Rig) -> None:
    await rig.flip(JUDGE)
    await rig.reconciler.close()
    assert rig.resident() == []
    assert await rig.states() == [("closed", "guard_stopped")]
