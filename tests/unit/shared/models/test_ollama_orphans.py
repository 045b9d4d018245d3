"""Runners that outlived their Ollama are found among the processes of this host, and told from others."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from shared.models.ollama_orphans import find_orphans, find_runners, is_running

pytestmark = pytest.mark.anyio

SLEEP = "import time; print('running', flush=True); time.sleep(600)"
SERVE = "import json, os, subprocess; subprocess.run(json.loads(os.environ['RUNNER']))"
URL = "http://127.0.0.1:11434"
WEIGHTS = "sha256-6115a3f4"
BLOB = f"blobs/{WEIGHTS}"
Start = Callable[..., int]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Starts a sleeping process under the name of a program, maybe as a child of another, and returns the pid of the
    first that was started; all are killed at the end."""
    running: list[psutil.Popen] = []

    def command(program: str, code: str) -> list[str]:
        link = tmp_path / program
        link.symlink_to(sys.executable)
        return [str(link), "-c", code]

    def start(program: str, *arguments: str, parent: str | None = None) -> int:
        runner = [*command(program, SLEEP), *arguments]
        first = command(parent, SERVE) if parent else runner
        process = psutil.Popen(first, stdout=subprocess.PIPE, env={**os.environ, "RUNNER": json.dumps(runner)})
        running.append(process)
        process.stdout.readline()  # for a moment after exec, its command line is empty
        return int(process.pid)

    yield start
    for process in running:
        for each in (*process.children(recursive=True), process):
            each.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("llama-server", ("--model", BLOB)), ("ollama", ("runner", BLOB)), (".ollama-wrapped", ("runner", BLOB))],
)
def test_a_runner_whose_server_is_gone_is_named_with_the_command_that_ends_it(
    started: Start, program: str, arguments: tuple[str, ...]
) -> None:
    pid = started(program, *arguments)
    ((found, said),) = find_orphans(URL)
    assert found == pid
    assert said.startswith(f"{program} (pid {pid}) of an Ollama that was killed still holds ")
    assert said.endswith(f": kill {pid}")


@pytest.mark.parametrize("server", ["ollama", ".ollama-wrapped", "..ollama-wrapped-wrapped"])
def test_a_runner_whose_server_lives_is_no_orphan(started: Start, server: str) -> None:
    started("llama-server", "--model", BLOB, parent=server)
    assert find_orphans(URL) == []


def test_a_runner_of_a_program_with_another_name_is_an_orphan(started: Start) -> None:
    started("llama-server", "--model", BLOB, parent="ollama-watch")
    assert len(find_orphans(URL)) == 1


def test_the_runner_of_a_loaded_model_is_found_until_it_ends(started: Start) -> None:
    server = started("llama-server", "--model", f"/blobs/{WEIGHTS}", parent="ollama")
    (runner,) = find_runners(URL, WEIGHTS)
    assert psutil.Process(server).children() == [runner]
    assert (find_runners(URL, "sha256-0000"), find_runners("http://gpu-box:11434", WEIGHTS)) == ([], [])
    assert is_running(runner)
    runner.kill()
    psutil.wait_procs([runner], timeout=60)
    assert not is_running(runner)
    assert find_runners(URL, WEIGHTS) == []


def test_an_orphan_is_no_runner_of_a_server(started: Start) -> None:
    started("llama-server", "--model", BLOB)
    assert find_runners(URL, WEIGHTS) == []


def test_a_model_server_of_somebody_else_is_none(started: Start) -> None:
    started("llama-server", "--model", "/models/mine.gguf")
    assert find_orphans(URL) == []


def test_those_of_a_server_elsewhere_cannot_be_seen(started: Start) -> None:
    started("llama-server", "--model", BLOB)
    assert find_orphans("http://gpu-box:11434") == []
