"""Children of the guard: the process driver around a child that the test writes, and the scripted model."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import psutil
import pytest

from services.guard.drivers import process
from services.guard.drivers.plugin import RATING, ScriptedDriver, ScriptedServer
from services.guard.drivers.ports import DriverError
from services.guard.drivers.process import LlamaServer, ProcessDriver
from shared.calls import Decoding
from shared.mathtext.answers import extract
from shared.models.chat import LLAMA
from shared.rag.prompts import parse_rating
from shared.replies import Rated
from shared.settings import Device, Model

pytestmark = pytest.mark.anyio

# The process driver around a child that the test writes; the real llama.cpp child is in the integration ring.

READY = "print(json.dumps({'url': 'http://127.0.0.1:9'}), flush=True)"
WAIT = "signal.pause()"

Child = Callable[[str], ProcessDriver]


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF weights")
    return path


def driver(path: Path, load_timeout_s: float = 60.0, **options: Any) -> ProcessDriver:
    model = Model(driver="process", path=path, **options)
    return ProcessDriver("a-model", model, Device(load_timeout_s=load_timeout_s))


@pytest.fixture
async def child(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Child]:
    script = tmp_path / "child"
    pids = tmp_path / "pids"
    seen = {"path": str(tmp_path / "seen.json"), "pids": str(pids)}

    def make(program: str) -> ProcessDriver:
        script.write_text(
            f"#!{sys.executable} -S\nimport json, os, signal, sys\n"
            f"with open({seen['pids']!r}, 'a') as file: print(os.getpid(), file=file)\n"
            f"with open({seen['path']!r}, 'w') as file: json.dump([sys.argv, dict(os.environ)], file)\n{program}\n"
        )
        script.chmod(0o700)
        monkeypatch.setattr(process, "sys", SimpleNamespace(executable=str(script)))
        return driver(gguf, context=64, parallel=2, threads=3)

    yield make
    for pid in pids.read_text().split() if pids.exists() else []:
        with suppress(ProcessLookupError):
            os.kill(int(pid), 9)


def started(gguf: Path) -> list[int]:
    return [int(pid) for pid in (gguf.parent / "pids").read_text().split()]


async def up(made: ProcessDriver) -> LlamaServer:
    with anyio.fail_after(60):
        return await made.start()


async def test_a_model_is_its_file_and_its_options(gguf: Path) -> None:
    identity = await driver(gguf, context=64, parallel=2, footprint_mib=96).identify()
    assert identity.digest == hashlib.sha256(b"GGUF weights").hexdigest()
    assert identity.options == {"context": 64, "parallel": 2, "sampling": dict(LLAMA)}
    assert (identity.device, identity.needs_lease, identity.footprint_mib) == ("cpu:0", True, 96)
    assert identity.hash == (await driver(gguf, context=64, parallel=2, threads=4).identify()).hash
    assert identity.hash != (await driver(gguf, context=128, parallel=2).identify()).hash
    assert identity.hash != (await driver(gguf, context=64, parallel=4).identify()).hash


async def test_a_deterministic_model_is_another_model_with_one_slot_and_no_prompt_cache(
    child: Child, gguf: Path
) -> None:
    made = driver(gguf, context=64, threads=3, deterministic=True)
    identity = await made.identify()
    assert identity.options == {
        "context": 64, "parallel": 1, "deterministic": True, "threads": 3, "sampling": dict(LLAMA),
    }  # fmt: skip
    for other in ({"parallel": 1}, {"threads": 2, "deterministic": True}):
        assert (await driver(gguf, context=64, **other).identify()).hash != identity.hash
    child(f"{READY}\n{WAIT}")
    server = await up(made)
    arguments, _ = json.loads((gguf.parent / "seen.json").read_text())
    await server.stop()
    assert " ".join(arguments[4:]) == f"{gguf} --context 64 --parallel 1 --threads 3 --no-cache-prompt"


async def test_a_model_with_constrained_labels_is_another_model(gguf: Path) -> None:
    plain, constrained = await driver(gguf).identify(), await driver(gguf, constrain_labels=True).identify()
    assert constrained.options == plain.options | {"constrain_labels": True}
    assert constrained.hash != plain.hash


async def test_a_file_that_was_replaced_is_another_model(gguf: Path) -> None:
    made = driver(gguf)
    before = await made.identify()
    gguf.write_bytes(b"GGUF weightz")  # noqa: ASYNC240 - a few bytes
    os.utime(gguf, ns=(1, 1))
    after = await made.identify()
    assert after.digest == hashlib.sha256(b"GGUF weightz").hexdigest()
    assert after.hash != before.hash


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.gguf"
    with pytest.raises(DriverError, match=rf"{missing}.*put it there"):
        await driver(missing).identify()


def test_a_process_model_needs_a_path() -> None:
    with pytest.raises(DriverError, match=r"'a-model'.*`path`"):
        ProcessDriver("a-model", Model(driver="process"), Device())


async def test_a_server_is_up_once_it_says_where_it_listens(child: Child, gguf: Path) -> None:
    server = await up(child(f"{READY}\n{WAIT}"))
    assert started(gguf) == [server.pid]
    assert server.alive
    assert os.getsid(server.pid or 0) == server.pid
    assert (server.memory_mib() or 0) > 0
    await server.stop()
    assert not server.alive
    assert not psutil.pid_exists(server.pid or 0)
    assert server.memory_mib() is None
    await server.stop()  # a second time is harmless


async def test_the_key_goes_through_the_environment(child: Child, gguf: Path) -> None:
    made, keys = child(f"{READY}\n{WAIT}"), set()
    for _ in range(2):
        server = await up(made)
        arguments, environment = json.loads((gguf.parent / "seen.json").read_text())
        key = environment["MATHRAG_SERVER_KEY"]
        assert len(key) >= 16
        assert key not in " ".join(arguments)
        keys.add(key)
        await server.stop()
    assert len(keys) == 2


async def test_the_child_is_told_its_file_and_options(child: Child, gguf: Path) -> None:
    server = await up(child(f"{READY}\n{WAIT}"))
    arguments, _ = json.loads((gguf.parent / "seen.json").read_text())
    await server.stop()
    told = " ".join(arguments[1:])
    assert told == f"-P -m services.guard.llama_server {gguf} --context 64 --parallel 2 --threads 3"


async def test_a_stubborn_server_is_killed(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STOP_S", 0.05)
    server = await up(child(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\nwhile True: {WAIT}"))
    with anyio.fail_after(60):
        await server.stop()
    assert not psutil.pid_exists(server.pid or 0)


async def test_the_death_of_a_server_is_noticed(child: Child) -> None:
    server = await up(child(f"{READY}\n{WAIT}"))
    waiting = asyncio.create_task(server.wait_exited())
    os.kill(server.pid or 0, 9)
    with anyio.fail_after(60):
        await waiting
    assert not server.alive
    await server.stop()


@pytest.mark.parametrize(
    "program", ["sys.exit(1)", "print('loading ...', flush=True)\nsignal.pause()"], ids=["exits", "babbles"]
)
async def test_a_server_that_does_not_come_up_is_a_driver_error(child: Child, gguf: Path, program: str) -> None:
    made = child(program)
    with anyio.fail_after(60), pytest.raises(DriverError, match=r"'a-model'.*did not print its address"):
        await made.start()
    assert not any(psutil.pid_exists(pid) for pid in started(gguf))


async def test_a_server_that_loads_for_ever_is_given_up(child: Child, gguf: Path) -> None:
    child(WAIT)
    made = driver(gguf, load_timeout_s=0.5)
    with anyio.fail_after(60), pytest.raises(DriverError, match="was not ready within"):
        await made.start()
    assert not any(psutil.pid_exists(pid) for pid in started(gguf))


# The scripted model: answers by rule, so two runs agree and every hop around it is real.

MODEL = Model(driver="scripted", footprint_mib=7)


async def test_it_rates_what_asks_for_a_rating() -> None:
    replies = [await ScriptedServer().complete(f"{n} {RATING}", Decoding(), 0) for n in range(100)]
    ratings = [parse_rating(reply.text, truncated=False) for reply in replies]
    assert all(isinstance(rating, Rated) for rating in ratings)
    assert {rating.rating for rating in ratings if isinstance(rating, Rated)} == {1, 2, 3, 4, 5}


async def test_it_replies_with_a_choice_where_there_are_some() -> None:
    replies = [await ScriptedServer().complete(str(n), Decoding(), 0, choices=("[[1]]", "[[2]]")) for n in range(50)]
    assert {reply.text for reply in replies} == {"[[1]]", "[[2]]"}


async def test_it_boxes_an_answer_to_everything_else() -> None:
    reply = await ScriptedServer().complete("What is 1 plus 1?", Decoding(), 0)
    answer, _ = extract(reply.text)
    assert answer in {str(n) for n in range(10)}
    assert (reply.finish_reason, reply.prompt_tokens) == ("stop", 5)


async def test_a_greedy_answer_depends_on_the_prompt_alone() -> None:
    greedy = Decoding(temperature=0.0)
    assert await ScriptedServer().complete("p", greedy, 1) == await ScriptedServer().complete("p", greedy, 2)
    assert len({(await ScriptedServer().complete(str(n), greedy, 0)).text for n in range(50)}) > 1


async def test_a_sampled_answer_depends_on_the_seed_too() -> None:
    sampled = Decoding(temperature=0.7)
    first = [(await ScriptedServer().complete("p", sampled, seed)).text for seed in range(50)]
    assert first == [(await ScriptedServer().complete("p", sampled, seed)).text for seed in range(50)]
    assert len(set(first)) > 1


async def test_it_needs_the_lease_and_fits_a_budget_like_any_other() -> None:
    driver = ScriptedDriver("s", MODEL, Device(id="cpu:1"))
    identity = await driver.identify()
    assert (identity.needs_lease, identity.device, identity.footprint_mib) == (True, "cpu:1", 7)
    assert identity.hash == (await driver.identify()).hash


async def test_it_is_alive_until_it_is_stopped() -> None:
    server = await ScriptedDriver("s", MODEL, Device()).start()
    assert (server.pid, server.alive, server.memory_mib()) == (None, True, 0.0)
    await server.stop()
    assert not server.alive
