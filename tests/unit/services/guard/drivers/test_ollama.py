import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from services.guard.drivers import ollama, ports
from services.guard.drivers.ollama import OllamaDriver, OllamaServer
from services.guard.drivers.ports import DriverError
from services.guard.drivers.process import ProcessDriver
from shared.calls import Decoding
from shared.models.chat import OLLAMA, ChatFailed
from shared.models.ollama import DEFAULT_URL
from shared.models.ollama_orphans import Orphan
from shared.rag.prompts import parse_label
from shared.replies import FailureKind, Rated
from shared.settings import REPOSITORY, Device, Model
from tests.doubles.chat_server import ChatServer, Reply
from tests.doubles.ollama_server import MIB, SHOWN, SIZE, Manifest, Ollama, ollama_server

# What drivers tell of a model's shape; that they cannot is no reason not to serve it.


pytestmark = pytest.mark.anyio

TAG = "qwen2.5:7b"


def process(path: Path) -> ProcessDriver:
    return ProcessDriver("m", Model(driver="process", path=path), Device())


async def test_a_file_tells_by_its_header() -> None:
    found = await process(REPOSITORY / "models" / "world-judge-f16.gguf").architecture()
    assert found is not None
    assert (found.layers, found.vocabulary) == (4, 1024)


async def test_a_folder_tells_by_its_config(tmp_path: Path) -> None:
    config = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    tensors = json.dumps({"w": {"data_offsets": [0, 80]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(tensors)) + tensors)
    found = await process(tmp_path).architecture()
    assert found is not None
    assert (found.layers, found.head_dim, found.weights_bytes) == (2, 16, 80)


async def test_a_file_that_tells_nothing_is_served_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF weights")
    with caplog.at_level(logging.WARNING):
        assert await process(tmp_path / "model.gguf").architecture() is None
    assert "cannot be estimated" in caplog.text
    assert "GGUF version" in caplog.text


async def test_ollama_tells_what_it_shows(caplog: pytest.LogCaptureFixture) -> None:
    async with ollama_server(TAG) as (double, http):
        driver, absent = (
            OllamaDriver("m", Model(driver="ollama", tag=tag, url=http.url), Device(id="gpu:0"), frozenset({TAG}))
            for tag in (TAG, "absent:1b")
        )
        assert await driver.architecture() is None
        double.shown = SHOWN
        found = await driver.architecture()
        assert found is not None
        assert (found.layers, found.kv_heads, found.vocabulary, found.weights_bytes) == (28, 4, 152_064, SIZE)
        assert await absent.architecture() is None
    assert "HTTP 404" in caplog.text


# The driver of Ollama against a double of the protocol: what it verifies, when it notices, and what it leaves behind.
#
# This proves the protocol and the guard's half of it; what a real server does with a real GPU is not here.

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"
GPU = Device(id="gpu:0", free_timeout_s=0.2)
DECODING = Decoding(max_tokens=10)
RESET = Reply(missing=1, reset=True)


class Rig:
    def __init__(self, double: Ollama, http: ChatServer) -> None:
        self.double = double
        self.http = http
        self.up: list[OllamaServer] = []

    def driver(self, tag: str = JUDGE, device: Device = GPU, **options: object) -> OllamaDriver:
        given = {"context": 64, "parallel": 2, "url": self.http.url, **options}
        model = Model(driver="ollama", tag=tag, **given)  # type: ignore[arg-type]
        ours = frozenset({JUDGE, GENERATOR})
        return OllamaDriver(tag.partition(":")[0], model, device, ours)

    async def start(self, tag: str = JUDGE, device: Device = GPU, **options: object) -> OllamaServer:
        with anyio.fail_after(60):
            self.up.append(await self.driver(tag, device, **options).start())
        return self.up[-1]

    async def lost(self, server: OllamaServer) -> None:
        with anyio.fail_after(60):
            await server.wait_exited()
        assert not server.alive


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(ollama, "POLL_S", 0.03)
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 0.0)
    monkeypatch.setattr(ollama, "PROBE_S", 3600)
    async with ollama_server(JUDGE, GENERATOR) as (double, http):
        made = Rig(double, http)
        yield made
        double.keeps = False
        for server in made.up:
            await server.stop()
        assert not ollama._loaded[http.url]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch, rig: Rig) -> None:
    monkeypatch.setattr(ollama, "PROBE_S", 0.01)


async def test_a_model_is_its_manifest_its_server_and_its_options(rig: Rig) -> None:
    identity = await rig.driver(footprint_mib=96).identify()
    assert (identity.backend, identity.version, identity.digest) == ("ollama", "0.40.2", rig.double.pulled[JUDGE])
    assert identity.options == {
        "num_ctx": 64, "num_batch": 64, "truncate": False, "shift": False, "think": False, "quantisation": "Q4_K_M",
        "parallel": 2, "sampling": dict(OLLAMA),
    }  # fmt: skip
    assert (identity.device, identity.needs_lease, identity.footprint_mib) == ("gpu:0", True, 96)
    assert identity.hash == (await rig.driver(url=f"{rig.http.url}/").identify()).hash
    assert identity.hash != (await rig.driver(context=128).identify()).hash
    assert identity.hash != (await rig.driver(device=Device(id="cpu:0")).identify()).hash
    rig.double.version = "0.40.3"
    assert identity.hash != (await rig.driver().identify()).hash


async def test_a_tag_that_was_pulled_again_is_another_model(rig: Rig) -> None:
    before = await rig.driver().identify()
    rig.double.pull(JUDGE, "v2")
    assert (await rig.driver().identify()).hash != before.hash


async def test_a_model_that_is_not_pulled_is_an_error_with_its_command(rig: Rig) -> None:
    with pytest.raises(DriverError, match=rf"model 'other': {rig.http.url} has no model .*: ollama pull other:1b"):
        await rig.driver("other:1b").identify()


def test_name_and_address_have_defaults() -> None:
    driver = OllamaDriver("qwen2.5", Model(driver="ollama"), GPU, frozenset())
    assert driver._tag == "qwen2.5:latest"
    assert driver._make_client().url == DEFAULT_URL


def test_the_models_of_a_configuration_are_known_by_tag() -> None:
    configured = {"a": Model(driver="ollama"), "b": Model(driver="ollama", tag="x:1b"), "c": Model(driver="scripted")}
    assert ollama.list_tags(configured) == {"a:latest", "x:1b"}


async def test_a_server_is_up_once_its_model_was_seen(rig: Rig) -> None:
    server = await rig.start()
    for temperature in (0.0, 0.7):
        reply = await server.complete("2 + 2 =", Decoding(temperature=temperature, max_tokens=20), seed=1)
        assert (reply.text, reply.finish_reason) == (rig.double.answer("2 + 2 ="), "stop")
    assert rig.double.loads == [JUDGE]
    assert (server.alive, server.pid, server.exit_status, server.memory_mib()) == (True, None, None, 400.0)


async def test_a_reply_is_one_of_those_that_are_allowed_as_a_json_string(rig: Rig) -> None:
    plain, constrained = await rig.driver().identify(), await rig.driver(constrain_labels=True).identify()
    assert constrained.options == plain.options | {"constrain_labels": True}
    server = await rig.start(constrain_labels=True)
    await server.complete("p", DECODING, seed=1)
    reply = await server.complete("p", DECODING, seed=1, choices=("[[1]]", "[[2]]"))
    free, body = rig.double.bodies[-2:]
    assert body == free | {"format": {"type": "string", "enum": ["[[1]]", "[[2]]"]}}
    assert reply.text == '"[[2]]"'
    assert parse_label(reply.text, truncated=False, most=2) == Rated(rating=2, text=reply.text)


async def test_on_a_cpu_device_no_layer_goes_to_a_gpu(rig: Rig) -> None:
    server = await rig.start(device=Device(id="cpu:0"))
    (runner,) = rig.double.runners.values()
    assert (runner.size_vram, server.memory_mib()) == (0, 400.0)
    await server.complete("p", DECODING, seed=1)
    assert rig.double.loads == [JUDGE]
    assert all(body["options"]["num_gpu"] == 0 for body in rig.double.bodies)


def spills(double: Ollama) -> None:
    double.spill = 100 * MIB


def shrinks(double: Ollama) -> None:
    double.train_context = 32


def strangers(double: Ollama) -> None:
    double.pull("llama3:8b")
    double.load("llama3:8b")


def vanishes(double: Ollama) -> None:
    del double.pulled[JUDGE]


def hangs(double: Ollama) -> None:
    double.hangs_on_load = True


def cuts(double: Ollama) -> None:
    double.wrong.left["cut"] = None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cuts, r"silently truncates prompts longer than `context`"),
        (spills, r"100 of 400 MiB of judge:0\.5b are not on the GPU"),
        (shrinks, r"context of 32, not 64; set `context`"),
        (strangers, r"has loaded llama3:8b, not for this guard: ollama stop llama3:8b"),
        (vanishes, r"ollama pull judge:0\.5b"),
        (hangs, r"not loaded within 0\.5 s"),
    ],
)
async def test_a_model_that_is_not_as_it_was_asked_for_does_not_come_up(
    rig: Rig, spoil: Callable[[Ollama], None], said: str
) -> None:
    spoil(rig.double)
    device = Device(id="gpu:0", load_timeout_s=0.5 if spoil is hangs else 60.0)
    with anyio.fail_after(60), pytest.raises(DriverError, match=rf"model 'judge': .*{said}"):
        await rig.driver(device=device).start()
    rig.double._resident()
    assert not [runner for runner in rig.double.runners.values() if runner.name == JUDGE]
    assert not ollama._loaded[rig.http.url]


async def test_a_load_that_is_cancelled_leaves_nothing(rig: Rig) -> None:
    rig.double.hangs_on_load = True
    loading = asyncio.create_task(rig.driver().start())
    with anyio.fail_after(60):
        while not rig.double.bodies:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0)
    loading.cancel()
    await asyncio.wait([loading])
    assert loading.cancelled()
    assert rig.double.bodies[-1]["keep_alive"] == 0
    assert not ollama._loaded[rig.http.url]


async def test_what_a_killed_guard_left_is_unloaded_first(rig: Rig) -> None:
    rig.double.load(GENERATOR)
    rig.double.load(JUDGE)
    rig.double.unlists_after = 2
    await rig.start()
    assert [runner.name for runner in rig.double.runners.values()] == [JUDGE]
    assert rig.double.loads == [GENERATOR, JUDGE, JUDGE]


async def test_what_was_left_of_a_tag_that_was_removed_is_waited_for(rig: Rig) -> None:
    rig.double.load(GENERATOR)
    del rig.double.pulled[GENERATOR]
    with anyio.fail_after(60), pytest.raises(DriverError, match=r"does not unload generator:7b; if it stays for 30 s"):
        await rig.driver().start()
    next(iter(rig.double.runners.values())).expires_at = 0.0
    assert (await rig.start()).alive


async def test_memory_that_did_not_come_back_is_asked_for_whatever_is_listed(rig: Rig) -> None:
    rig.double.runners.clear()
    await rig.driver().take_over()
    assert [body["keep_alive"] for body in rig.double.bodies] == [0]
    rig.http.respond = lambda _: RESET
    await rig.driver().take_over()


async def test_what_an_ollama_that_was_killed_left_behind_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    left = "llama-server (pid 7) of an Ollama that was killed still holds 350 MiB: kill 7"
    monkeypatch.setattr(ollama, "find_orphans", lambda _: [Orphan(7, left)])
    with pytest.raises(DriverError, match=r"still holds 350 MiB: kill 7"):
        await rig.driver().start()
    assert rig.double.loads == []


async def test_what_does_not_go_is_not_loaded_over(rig: Rig) -> None:
    rig.double.load(GENERATOR)
    rig.double.keeps = True
    with (
        anyio.fail_after(60),
        pytest.raises(DriverError, match=r"does not unload generator:7b; if it stays for 30 s, restart"),
    ):
        await rig.driver().start()
    assert rig.double.loads == [GENERATOR]


def evicts(double: Ollama) -> None:
    double.runners.clear()


def takes_its_place(double: Ollama) -> None:
    double.most = 1
    strangers(double)


def is_created_again(double: Ollama) -> None:
    double.create(JUDGE, system="You are a pirate.")


def is_sampled_otherwise(double: Ollama) -> None:
    double.create(JUDGE, parameters=(("top_k", 1),))


def is_changed_and_changed_back(double: Ollama) -> None:
    before = double.manifest(JUDGE)
    double.create(JUDGE, system="You are a pirate.")
    double.put(JUDGE, before)


def is_removed(double: Ollama) -> None:
    del double.pulled[JUDGE]


def moves(double: Ollama) -> None:
    double.spill = 100 * MIB
    double.load(JUDGE, {"num_ctx": 64, "num_batch": 64}, shift=False)


def resizes(double: Ollama) -> None:
    double.load(JUDGE, {"num_ctx": 32})


def replaces(double: Ollama) -> None:
    double.pull(JUDGE, "v2")
    double.load(JUDGE, {"num_ctx": 64})


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (evicts, "is not loaded any more"),
        (strangers, "llama3:8b is loaded as well"),
        (takes_its_place, "llama3:8b is loaded in its place, and not by this guard: ollama stop llama3:8b"),
        (moves, "not on the GPU"),
        (resizes, "context of 32"),
        (replaces, "was pulled or created again"),
        (is_created_again, "was pulled or created again"),
        (is_sampled_otherwise, "was pulled or created again"),
        (is_changed_and_changed_back, "was written again"),
        (is_removed, "was removed from the server"),
    ],
)
async def test_a_residency_that_is_not_ours_any_more_is_noticed(
    rig: Rig, looking: None, caplog: pytest.LogCaptureFixture, happens: Callable[[Ollama], None], said: str
) -> None:
    server = await rig.start()
    happens(rig.double)
    await rig.lost(server)
    assert said in caplog.text
    assert not server.died


@pytest.mark.parametrize(
    "happens", [is_created_again, is_sampled_otherwise, is_changed_and_changed_back, is_removed, takes_its_place]
)
async def test_a_reply_of_a_model_that_changed_before_it_is_not_confirmed(
    rig: Rig, happens: Callable[[Ollama], None]
) -> None:
    server = await rig.start()
    assert await server.confirm()
    happens(rig.double)
    assert not await server.confirm()
    assert (server.alive, server.died) == (False, False)


async def test_a_reply_that_nobody_can_confirm_is_not_believed(rig: Rig) -> None:
    server = await rig.start()
    respond = rig.http.respond
    rig.http.respond = lambda seen: Reply(status=500) if seen.path == "/api/tags" else respond(seen)
    assert not await server.confirm()
    assert server.alive
    rig.http.respond = respond
    assert await server.confirm()


async def test_a_call_of_a_model_that_was_removed_ends_the_residency(rig: Rig) -> None:
    server = await rig.start()
    is_removed(rig.double)
    with pytest.raises(ChatFailed) as caught:
        await server.complete("p", DECODING, seed=1)
    assert caught.value.kind is FailureKind.CONNECTION
    assert (server.alive, server.died) == (False, False)


async def test_a_model_stays_while_its_residency_lives_and_not_much_longer(
    rig: Rig, looking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama, "KEEP_S", 0.03)
    server = await rig.start()
    asked = len(rig.double.bodies)
    with anyio.fail_after(60):
        while len(rig.double.bodies) < asked + 3:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
    assert server.alive
    assert rig.double.loads == [JUDGE]
    assert {body["messages"] == [] for body in rig.double.bodies[asked:]} == {True}
    assert all(0 < body["keep_alive"] <= 120 for body in rig.double.bodies)


async def test_a_call_that_had_its_model_loaded_ends_the_residency(rig: Rig) -> None:
    server = await rig.start()
    rig.double.runners.clear()
    with pytest.raises(ChatFailed) as caught:
        await server.complete("p", DECODING, seed=1)
    assert caught.value.kind is FailureKind.CONNECTION
    assert (server.alive, server.died) == (False, False)
    await rig.lost(server)


async def test_a_call_after_another_pull_is_not_answered_by_the_new_model(rig: Rig) -> None:
    server = await rig.start()
    rig.double.pull(JUDGE, "v2")
    with pytest.raises(ChatFailed, match="loaded again"):
        await server.complete("p", DECODING, seed=1)
    assert not server.alive


async def test_a_lost_connection_is_looked_into_at_once(rig: Rig) -> None:
    server = await rig.start()
    rig.http.respond = lambda _: RESET
    with pytest.raises(ChatFailed) as caught:
        await server.complete("p", DECODING, seed=1)
    assert caught.value.kind is FailureKind.CONNECTION
    await rig.lost(server)
    assert not server.died


async def test_an_error_of_the_server_is_looked_into_at_once(rig: Rig) -> None:
    server = await rig.start()
    rig.double.runners.clear()
    respond = rig.http.respond
    rig.http.respond = lambda seen: Reply(status=500) if seen.path == "/api/chat" else respond(seen)
    with pytest.raises(ChatFailed):
        await server.complete("p", DECODING, seed=1)
    await rig.lost(server)


@pytest.mark.parametrize("how", ["out_of_memory", "die", "end"])
async def test_a_runner_that_died_takes_its_calls_with_it(rig: Rig, how: str) -> None:
    server = await rig.start()
    rig.double.wrong.left[how] = 1
    with pytest.raises(ChatFailed) as caught:
        await server.complete("p", DECODING, seed=1)
    assert caught.value.kind is FailureKind.CONNECTION
    assert (server.alive, server.died) == (False, True)


async def test_a_reload_of_less_than_a_second_is_noticed(rig: Rig) -> None:
    server = await rig.start()
    rig.double.kill()
    with pytest.raises(ChatFailed, match=r"loaded again.*0\.8 s"):
        await server.complete("p", DECODING, seed=1)
    assert (server.alive, server.died) == (False, False)


class Runner:
    def __init__(self, double: Ollama, pid: int) -> None:
        self._double = double
        self.pid = pid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runner) and other.pid == self.pid

    def __hash__(self) -> int:
        return self.pid

    def is_running(self) -> bool:
        return any(each.alive and each.pid == self.pid for each in self._double.runners.values())

    def status(self) -> str:
        return "sleeping"


@pytest.fixture
def on_this_host(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(url: str, weights: str) -> list[Runner]:
        assert url == rig.http.url
        held = [each for each in rig.double.runners.values() if each.alive]
        return [Runner(rig.double, each.pid) for each in held if Manifest(each.weights).blob == weights]

    monkeypatch.setattr(ollama, "find_runners", find)


@pytest.mark.usefixtures("on_this_host")
@pytest.mark.parametrize("waited_s", [0.3, 0.4, 2.0, 9.0])
async def test_a_busy_host_that_finds_a_loaded_model_late_ends_no_residency(rig: Rig, waited_s: float) -> None:
    server = await rig.start()
    rig.double.chat = [{"load_duration": int(waited_s * 1e9)}] * 3
    for _ in range(3):
        assert (await server.complete("p", DECODING, seed=1)).finish_reason == "stop"
        assert await server.confirm()
    assert (server.alive, await server.count_reloads()) == (True, 0)
    assert rig.double.loads == [JUDGE]


async def test_where_no_process_is_seen_a_wait_as_on_a_busy_host_is_only_looked_into(rig: Rig) -> None:
    server = await rig.start()
    rig.double.chat = [{"load_duration": 400_000_000}]
    looks = len(rig.http.seen)
    assert (await server.complete("p", DECODING, seed=1)).finish_reason == "stop"
    with anyio.fail_after(60):
        while not any(seen.path == "/api/ps" for seen in rig.http.seen[looks:]):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (server.alive, await server.count_reloads()) == (True, 0)
    rig.double.chat = [{"load_duration": 600_000_000}]
    with pytest.raises(ChatFailed, match=r"loaded again.*0\.6 s"):
        await server.complete("p", DECODING, seed=1)
    assert (server.alive, await server.count_reloads()) == (False, 1)


@pytest.mark.usefixtures("on_this_host")
async def test_a_load_that_is_as_fast_as_finding_the_model_is_noticed_by_the_process(rig: Rig) -> None:
    server = await rig.start()
    rig.double.kill()
    rig.double.chat = [{"load_duration": 1_000_000}]
    assert (await server.complete("p", DECODING, seed=1)).finish_reason == "stop"
    assert not await server.confirm()
    assert (server.alive, server.died) == (False, False)
    assert await server.count_reloads() == 1
    assert rig.double.loads == [JUDGE, JUDGE]


@pytest.mark.usefixtures("on_this_host")
async def test_a_call_that_its_runner_did_not_answer_ends_the_residency_and_is_counted_once(rig: Rig) -> None:
    server = await rig.start()
    rig.double.kill()
    rig.double.chat = [{"load_duration": 300_000_000}] * 2
    for _ in range(2):
        with pytest.raises(ChatFailed, match="loaded again"):
            await server.complete("p", DECODING, seed=1)
    assert (server.alive, await server.count_reloads()) == (False, 1)


@pytest.mark.usefixtures("on_this_host", "looking")
async def test_a_runner_that_died_unreported_is_noticed_and_its_calls_are_suspects(rig: Rig) -> None:
    server = await rig.start()
    rig.double.kill()
    await rig.lost(server)
    assert (server.died, await server.count_reloads()) == (True, 0)
    assert rig.double.loads == [JUDGE]


@pytest.mark.usefixtures("on_this_host")
async def test_a_runner_that_died_without_a_successor_is_no_further_load(rig: Rig) -> None:
    server = await rig.start()
    rig.double.wrong.left["die"] = 1
    with pytest.raises(ChatFailed):
        await server.complete("p", DECODING, seed=1)
    assert (server.alive, server.died, await server.count_reloads()) == (False, True, 0)


async def test_a_connection_that_was_lost_alone_ends_nothing(rig: Rig) -> None:
    server = await rig.start()
    rig.double.chat = [Reply(body=b'{"mess', missing=10, reset=True)]
    with pytest.raises(ChatFailed):
        await server.complete("p", DECODING, seed=1)
    looks = len(rig.http.seen)
    with anyio.fail_after(60):
        while len(rig.http.seen) == looks:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0)
    assert (await server.complete("p", DECODING, seed=1)).finish_reason == "stop"
    assert server.alive


async def test_a_server_that_does_not_answer_looks_is_given_some_time(
    rig: Rig, looking: None, caplog: pytest.LogCaptureFixture
) -> None:
    server = await rig.start()
    answers = [Reply(status=500), Reply(status=500), None, Reply(status=500), Reply(status=500), Reply(status=500)]
    respond = rig.http.respond
    rig.http.respond = lambda seen: (answers.pop(0) if answers else None) or respond(seen)
    await rig.lost(server)
    assert answers == []
    assert "HTTP 500" in caplog.text


async def test_a_stop_unloads_and_waits_until_the_model_is_gone(rig: Rig) -> None:
    server = await rig.start()
    rig.double.unlists_after = 3
    with anyio.fail_after(60):
        await server.stop()
    assert (server.alive, rig.double.runners) == (False, {})
    await rig.lost(server)
    await server.stop()


async def test_a_model_that_survives_its_unload_keeps_its_server_alive(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    server = await rig.start()
    rig.double.keeps = True
    with anyio.fail_after(60):
        await server.stop()
    assert server.alive
    assert "still loaded" in caplog.text
    looks = len(rig.http.seen)
    await server.stop()
    assert [seen.path for seen in rig.http.seen[looks:]] == ["/api/chat", "/api/ps"]  # its patience is over
    rig.double.keeps = False
    await server.stop()
    assert not server.alive


async def test_a_model_that_was_removed_while_it_was_loaded_is_stopped_once_it_is_gone(rig: Rig) -> None:
    server = await rig.start()
    weights = rig.double.manifest(JUDGE).weights
    del rig.double.pulled[JUDGE]
    with anyio.fail_after(60):
        await server.stop()
    assert server.alive
    rig.double.runners[weights].expires_at = 0.0  # its `keep_alive` is over
    await server.stop()
    assert not server.alive


async def test_a_server_that_went_away_is_stopped_without_it(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    server = await rig.start()
    rig.http.respond = lambda _: RESET
    await server.stop()
    assert not server.alive
    assert "cannot tell whether it is unloaded" in caplog.text


async def test_two_models_of_one_guard_may_be_resident_together(rig: Rig, looking: None) -> None:
    judge, generator = await rig.start(JUDGE), await rig.start(GENERATOR)
    for server in (judge, generator):
        await server.complete("p", DECODING, seed=1)
    assert judge.alive
    assert generator.alive
    await judge.stop()
    assert (await generator.complete("p", DECODING, seed=1)).finish_reason == "stop"
    assert rig.double.loads == [JUDGE, GENERATOR]


async def test_one_tag_under_two_names_is_not_loaded_over_itself(rig: Rig) -> None:
    server = await rig.start()
    with pytest.raises(DriverError, match=r"judge:0\.5b is already loaded for another entry"):
        await rig.driver(context=32).start()
    assert (await server.complete("p", DECODING, seed=1)).finish_reason == "stop"
    assert rig.double.loads == [JUDGE]


async def test_a_server_that_evicts_one_for_the_other_loses_the_first(rig: Rig, looking: None) -> None:
    rig.double.most = 1
    judge = await rig.start(JUDGE)
    generator = await rig.start(GENERATOR)
    await rig.lost(judge)
    assert generator.alive
