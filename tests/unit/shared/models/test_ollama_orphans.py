"""Runners that outlived their Ollama are found among the processes of this host, and told from others."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from shared.models.ollama_orphans import find_orphans

SLEEP = "import time; print('running', flush=True); time.sleep(600)"
URL = "http://127.0.0.1:11434"
BLOB = "blobs/sha256-6115a3f4"
Start = Callable[..., int]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Starts a sleeping process under the name of a program and returns its pid; all are killed at the end."""
    running: list[psutil.Popen] = []

    def start(program: str, *arguments: str) -> int:
        link = tmp_path / program
        link.symlink_to(sys.executable)
        process = psutil.Popen([str(link), "-c", SLEEP, *arguments], stdout=subprocess.PIPE)
        running.append(process)
        process.stdout.readline()  # for a moment after exec, its command line is empty
        return int(process.pid)

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("program", "arguments"), [("llama-server", ("--model", BLOB)), ("ollama", ("runner", BLOB))])
def test_a_runner_whose_server_is_gone_is_named_with_the_command_that_ends_it(
    started: Start, program: str, arguments: tuple[str, ...]
) -> None:
    """Of either kind; its parent, here the test, is no Ollama."""
    pid = started(program, *arguments)
    ((found, said),) = find_orphans(URL)
    assert found == pid
    assert said.startswith(f"{program} (pid {pid}) of an Ollama that was killed still holds ")
    assert said.endswith(f": kill {pid}")


def test_a_model_server_of_somebody_else_is_none(started: Start) -> None:
    """Its model is not one of Ollama's files."""
    started("llama-server", "--model", "/models/mine.gguf")
    assert find_orphans(URL) == []


def test_those_of_a_server_elsewhere_cannot_be_seen(started: Start) -> None:
    """Processes are looked for where the server is this host's."""
    started("llama-server", "--model", BLOB)
    assert find_orphans("http://gpu-box:11434") == []
