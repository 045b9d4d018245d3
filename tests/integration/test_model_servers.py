"""The real llama.cpp child with the shipped models: it answers, refuses with a type, and leaves nothing behind."""

import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import httpx2
import psutil
import pytest
from redis.asyncio import Redis

from services.guard import app as app_module
from services.guard.app import create_app
from services.guard.drivers.ports import DriverError
from services.guard.drivers.process import LlamaServer, ProcessDriver
from services.orchestrator.scheduling.scheduler import Scheduler
from shared.calls import Decoding
from shared.lease import residencies
from shared.models.chat import ChatFailed
from shared.replies import FailureKind
from shared.settings import REPOSITORY, Device, Model, Settings
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.integration.scene import rows

JUDGE, GENERATOR = (REPOSITORY / "models" / f"world-{name}-f16.gguf" for name in ("judge", "generator"))

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not (JUDGE.exists() and GENERATOR.exists()), reason="the shipped GGUF files are not there"),
]

GREEDY = Decoding(temperature=0.0, max_tokens=8)
CONTEXT = 512

# A guard of its own process that starts one server and waits to be killed.
PARENT = """
import asyncio, sys
from pathlib import Path
from services.guard.drivers.process import ProcessDriver
from shared.settings import Device, Model

async def main():
    model = Model(driver="process", path=Path(sys.argv[1]), parallel=1)
    server = await ProcessDriver("m", model, Device()).start()
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def driver(path: Path = JUDGE, parallel: int = 2) -> ProcessDriver:
    return ProcessDriver("world", Model(driver="process", path=path, context=CONTEXT, parallel=parallel), Device())


@pytest.fixture
async def server() -> AsyncIterator[LlamaServer]:
    started = await driver().start()
    yield started
    await started.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(120):
        while not await condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


async def test_it_answers_with_text_reason_and_tokens(server: LlamaServer) -> None:
    reply = await server.complete("What is 1 plus 2?", Decoding(temperature=0.0, max_tokens=1), seed=1)
    assert reply.finish_reason == "length"
    assert reply.completion_tokens == 1
    assert reply.prompt_tokens is not None
    assert reply.prompt_tokens > 3
    assert reply.prompt_ms is not None
    assert reply.completion_ms is not None


async def test_it_reports_how_many_prompt_tokens_it_takes_from_its_cache(server: LlamaServer) -> None:
    first, second = [await server.complete("What is 1 plus 2 plus 3 plus 4?", GREEDY, seed=1) for _ in range(2)]
    assert first.cached_tokens is not None
    assert second.cached_tokens is not None
    assert second.prompt_tokens is not None
    assert first.cached_tokens < second.cached_tokens < second.prompt_tokens


async def test_it_gives_the_log_probabilities_of_a_greedy_answer(server: LlamaServer) -> None:
    prompt = "What is 1 plus 2?"
    reply = await server.complete(prompt, GREEDY, 1, 5)
    plain = await server.complete(prompt, GREEDY, 1)
    assert (reply.text, plain.tokens) == (plain.text, ())
    assert "".join(token.text for token in reply.tokens) == reply.text
    assert len(reply.tokens) >= 1
    for token in reply.tokens:
        assert len(token.top) <= 5
        assert token.logprob == token.top[token.text] == max(token.top.values()) <= 0
        assert 0 < sum(math.exp(logprob) for logprob in token.top.values()) <= 1 + 1e-6


async def test_a_greedy_answer_is_the_same_again_and_among_others(server: LlamaServer) -> None:
    alone = await server.complete("What is 1 plus 2?", GREEDY, seed=1)
    together = await asyncio.gather(*(server.complete("What is 1 plus 2?", GREEDY, seed=n) for n in range(6)))
    assert {reply.text for reply in together} == {alone.text}


async def test_a_prompt_above_the_context_is_a_content_failure(server: LlamaServer) -> None:
    with pytest.raises(ChatFailed) as caught:
        await server.complete("word " * 5 * CONTEXT, GREEDY, seed=1)
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert server.alive
    assert (await server.complete("What is 1 plus 2?", GREEDY, seed=1)).completion_tokens


async def test_every_slot_has_the_whole_context() -> None:
    started = await driver(parallel=4).start()
    prompts = [f"{n} " + "word " * 350 for n in range(4)]
    replies = await asyncio.gather(*(started.complete(prompt, GREEDY, seed=1) for prompt in prompts))
    await started.stop()
    assert all(CONTEXT / 2 < (reply.prompt_tokens or 0) < CONTEXT for reply in replies)


async def test_the_key_is_needed_and_not_in_the_process_list(server: LlamaServer) -> None:
    child = psutil.Process(server.pid)
    key = child.environ()["MATHRAG_SERVER_KEY"]
    assert all(key not in argument for argument in child.cmdline())
    (address,) = {c.laddr for c in child.net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN}
    assert address.ip == "127.0.0.1"
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{address.port}", trust_env=False) as http:
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 401
        allowed = {"Authorization": f"Bearer {key}"}
        assert (await http.post("/v1/chat/completions", json=body, headers=allowed)).status_code == 200


async def test_a_stop_frees_everything() -> None:
    started = await driver().start()
    assert (started.memory_mib() or 0) > 1
    await started.stop()
    assert not started.alive
    assert not psutil.pid_exists(started.pid or 0)


async def test_a_server_that_is_killed_loses_its_calls(server: LlamaServer) -> None:
    running = asyncio.create_task(server.complete("What is 1 plus 2?", Decoding(temperature=1.0, max_tokens=200), 1))
    os.kill(server.pid or 0, signal.SIGSTOP)  # so that it cannot answer before it is killed
    await asyncio.sleep(0)
    os.kill(server.pid or 0, signal.SIGKILL)
    with anyio.fail_after(60):
        await server.wait_exited()
        with pytest.raises(ChatFailed) as caught:
            await running
    assert caught.value.kind is FailureKind.CONNECTION
    assert not server.alive


async def test_a_file_that_is_no_model_does_not_come_up(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(JUDGE.read_bytes()[:1000])
    children = set(psutil.Process().children())
    with anyio.fail_after(120), pytest.raises(DriverError, match="'world'"):
        await driver(broken).start()
    assert set(psutil.Process().children()) == children


async def test_the_child_dies_with_its_guard() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(JUDGE), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    with anyio.fail_after(120):
        child = psutil.Process(int(await parent.stdout.readline()))
        parent.kill()
        await parent.wait()

    async def gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    await until(gone)


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    paths = {"world-judge": JUDGE, "world-generator": GENERATOR}
    models = {name: Model(driver="process", path=path, footprint_mib=96) for name, path in paths.items()}
    return Settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path, models=models)


async def want(database: Database, name: str) -> int:
    ((model_id,),) = await rows(database, "SELECT id FROM models WHERE name = :n", n=name)
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, "cpu:0")
        epoch = await residencies.insert_wanted(
            connection, "cpu:0", newest.epoch if newest else 0, [int(str(model_id))], "test"
        )
    assert epoch is not None
    return epoch


async def states(database: Database) -> list[tuple[object, ...]]:
    return await rows(database, "SELECT state, reason FROM residencies ORDER BY epoch")


async def test_the_processes_that_were_started_are_the_entries_of_the_residencies(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int | None] = []
    start = ProcessDriver.start

    async def counted(self: ProcessDriver, parallel: int | None = None) -> LlamaServer:
        made = await start(self, parallel)
        started.append(made.pid)
        assert psutil.pid_exists(made.pid or 0)
        return made

    monkeypatch.setattr(ProcessDriver, "start", counted)
    async with serve_app(create_app(settings)):
        for name in ("world-judge", "world-generator", "world-judge"):
            await want(database, name)

            async def opened() -> bool:
                return (await states(database))[-1] == ("open", None)

            await until(opened)
            children = [child.pid for child in psutil.Process().children() if "llama_server" in str(child.cmdline())]
            assert children == started[-1:]  # never two at once
    entries = await rows(database, "SELECT servers, measured FROM residencies ORDER BY epoch")
    assert [entry["pid"] for servers, _ in entries for entry in servers] == started  # type: ignore[attr-defined]
    assert all(json.dumps(measured).count("memory_mib") == 1 for _, measured in entries)
    assert not any(psutil.pid_exists(pid or 0) for pid in started)


async def test_a_model_server_that_is_killed_closes_its_residency_and_the_scheduler_sees_why(
    settings: Settings, database: Database
) -> None:
    async with serve_app(create_app(settings)) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        first = await want(database, "world-judge")

        async def serves() -> bool:
            return bool((await http.get("/state")).json()["state"] == "open")

        await until(serves)
        ((servers,),) = await rows(database, "SELECT servers FROM residencies")
        os.kill(servers[0]["pid"], signal.SIGKILL)  # type: ignore[index]

        async def closed() -> bool:
            return await states(database) == [("closed", "server_exit")]

        await until(closed)
        async with Redis.from_url(settings.redis_url) as redis, database.snapshot() as connection:
            _, held, _ = await Scheduler(settings, database, redis).observer.observe(connection)
        assert held is not None
        assert (held.state, held.reason) == ("closed", "server_exit")
        second = await want(database, "world-judge")
        await until(serves)
        assert second > first
    assert [reason for _, reason in await states(database)] == ["server_exit", "guard_stopped"]


async def test_a_model_file_that_was_replaced_is_quarantined(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(JUDGE.read_bytes())
    settings.models["world-judge"] = Model(driver="process", path=path, footprint_mib=96)
    async with serve_app(create_app(settings)):
        path.write_bytes(GENERATOR.read_bytes())
        await want(database, "world-judge")

        async def quarantined() -> bool:
            return (await states(database))[0][0] == "quarantined"

        await until(quarantined)

        async def freed() -> bool:
            return not [child for child in psutil.Process().children() if "llama_server" in str(child.cmdline())]

        await until(freed)
    assert "'world-judge' is not the one jobs were submitted with" in str((await states(database))[0][1])
