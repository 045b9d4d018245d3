"""What the doctor says of a model of an Ollama server, with the command that mends it; the server is a double."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator import probes
from services.orchestrator.probes import check
from shared.check import Check
from shared.settings import Model, Settings
from tests.doubles.chat_server import Reply, chat_server
from tests.doubles.ollama_server import ollama_server

pytestmark = pytest.mark.anyio

TAG = "judge:0.5b"


async def looked(url: str, driver: str = "ollama", **options: str) -> Check:
    settings = Settings(models={TAG: Model(driver=driver, url=url, **options)})  # type: ignore[arg-type]
    held: Any = SimpleNamespace(settings=settings)
    return await check(probes.list_model_probes(settings)[0], held)


async def test_a_pulled_model_is_well() -> None:
    async with ollama_server(TAG) as (double, http):
        found = await looked(http.url)
    assert (found.ok, found.detail) == (True, f"Ollama 0.40.2; {TAG} {double.pulled[TAG][:12]}")


async def test_a_model_that_is_not_pulled_ends_with_its_pull() -> None:
    async with ollama_server(TAG) as (_, http):
        found = await looked(http.url, tag="other:7b")
    here = http.url.removeprefix("http://")
    pull = f"OLLAMA_HOST={here} ollama pull other:7b"
    assert (found.ok, found.fix.partition("; ")[0]) == (False, pull)
    assert f"OLLAMA_HOST={here} ollama create other:7b" in found.fix
    assert "has no model 'other:7b'" in found.detail


async def test_a_server_that_is_not_there_ends_with_its_start() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    found = await looked(gone.url)
    assert (found.ok, found.fix) == (False, f"OLLAMA_HOST={gone.url.removeprefix('http://')} ollama serve")
    assert gone.url in found.detail


async def test_a_server_that_is_used_by_its_other_protocol_is_said() -> None:
    async with ollama_server(TAG) as (_, http):
        found = await looked(f"{http.url}/v1", driver="remote")
    assert (found.ok, found.fix) == (False, f"`driver: ollama` with `url: {http.url}` for `models.{TAG}`")
    assert "silently truncates prompts" in found.detail


async def test_a_server_that_is_too_old_is_said() -> None:
    async with ollama_server(TAG) as (double, http):
        double.version = "0.11.10"
        found = await looked(http.url)
    assert not found.ok
    assert "install 0.12.6 or newer" in found.detail


async def test_a_stranger_s_model_ends_with_the_command_that_stops_it() -> None:
    async with ollama_server(TAG) as (double, http):
        double.pull("other:7b")
        double.load("other:7b")
        found = await looked(http.url)
    assert not found.ok
    assert "other:7b is loaded as well, and not by this guard" in found.detail
    assert found.fix.startswith(f"OLLAMA_HOST={http.url.removeprefix('http://')} ollama stop other:7b")


async def test_a_process_that_outlived_its_server_ends_with_its_kill(tmp_path: Path) -> None:
    runner = tmp_path / "llama-server"
    runner.symlink_to(sys.executable)
    command = [runner, "-c", "print(flush=True); input()", "/models/blobs/sha256-ab"]
    left = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220 - it only waits
    assert left.stdout is not None
    left.stdout.readline()  # for a moment after exec, its command line is empty
    try:
        async with ollama_server(TAG) as (_, http):
            found = await looked(http.url)
    finally:
        left.communicate()
    assert not found.ok
    assert "holds a model for an Ollama server that has ended" in found.detail
    assert str(left.pid) in found.fix.removeprefix("kill ").split()
