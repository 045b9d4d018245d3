"""A real Ollama: the server that `OLLAMA_HOST` names, or one that is started by the `ollama` that is installed here."""

import asyncio
import hashlib
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx2
import psutil

from mathrag.errors import Unavailable
from mathrag_gate.stack import process
from mathrag_gate.stack.redis import find_free_port
from shared.models.ollama_orphans import find_runners
from tests.real.environments import Lacking
from tests.running import REPOSITORY

JUDGE, GENERATOR = "mathrag-real-judge:latest", "mathrag-real-generator:latest"
FILES = {
    JUDGE: REPOSITORY / "models" / "world-judge-f16.gguf",
    GENERATOR: REPOSITORY / "models" / "world-generator-f16.gguf",
}
TEMPLATE = """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}<|im_start|>user
{{ .Prompt }}<|im_end|>
<|im_start|>assistant
"""
PARAMETERS = {"stop": ["<|im_end|>"]}
"""These as docs/how-to/ollama.md has them; the shipped files' own template makes the same prompt."""
SETTINGS = {"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_MAX_LOADED_MODELS": "1"}
PORT = 11434
ANSWER_S = 120.0
START_S = 120.0


class Ollama:
    """A server; with a `program` it is ours, and its data lie in `folder`, so that it has them again after a stop."""

    def __init__(self, url: str, program: str | None = None, folder: Path = Path()) -> None:
        self.url = url
        self.program = program
        self._folder = folder
        self._process: Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and return when it answers.

        Raises:
            Unavailable: it ended, or does not answer.
        """
        assert self.program is not None, "it is not ours"
        environment = {
            "OLLAMA_HOST": self.url.removeprefix("http://"), "OLLAMA_MODELS": str(self._folder / "models"),
            "HOME": str(self._folder), **SETTINGS,
        }  # fmt: skip
        log = self._folder / "log"
        command = [self.program, "serve"]
        # SIGTERM, so that it ends its runners.
        self._process = process.spawn(command, log=log, environment=environment, dies_by=signal.SIGTERM)
        asyncio.run(process.wait_ready("Ollama", self._process, self._answers, log=log, timeout_s=START_S))

    def stop(self) -> None:
        """As an operator does; a server of somebody else goes on."""
        if self._process is not None:
            asyncio.run(process.stop(self._process, grace_s=60.0))
            self._process = None

    def version(self) -> str:
        """What it says, and whose it is."""
        number = self._ask("GET", "/api/version").json()["version"]
        return f"{number}, {self.program or f'at {self.url}, which OLLAMA_HOST names'}"

    def loaded(self) -> list[str]:
        """The tags of what it holds."""
        return [each["name"] for each in self._ask("GET", "/api/ps").json()["models"]]

    def create(self, tag: str, system: str = "") -> None:
        """Make a model of its shipped file, in place of an earlier one."""
        digest = f"sha256:{_hash(FILES[tag])}"
        self._ask("POST", f"/api/blobs/{digest}", content=FILES[tag].read_bytes())
        parts = {"files": {FILES[tag].name: digest}, "template": TEMPLATE, "system": system}
        self._ask("POST", "/api/create", json={"model": tag, **parts, "parameters": PARAMETERS, "stream": False})

    def remove(self) -> None:
        """Take our models away."""
        for tag in FILES:
            with suppress(httpx2.HTTPError):  # it was not made
                self._ask("DELETE", "/api/delete", json={"model": tag})

    def kill_runners(self) -> int:
        """Send SIGKILL to the processes that hold our models, as far as they are seen and we may; how many."""
        killed = 0
        for file in FILES.values():
            for runner in find_runners(self.url, f"sha256-{_hash(file)}"):
                with suppress(psutil.Error):
                    runner.kill()
                    killed += 1
        return killed

    def _ask(self, method: str, path: str, **sent: Any) -> httpx2.Response:
        with httpx2.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False) as http:
            return http.request(method, path, **sent).raise_for_status()

    async def _answers(self) -> bool:
        try:
            self.version()
        except httpx2.HTTPError:
            return False
        return True


def found(folder: Path) -> Ollama:
    """A server that answers and holds nothing of others; one that is started here keeps its data in `folder`.

    Raises:
        Lacking: there is none.
    """
    if named := os.environ.get("OLLAMA_HOST"):
        server = Ollama(_address(named))
        with suppress(httpx2.HTTPError):
            if others := [each for each in server.loaded() if each not in FILES]:
                raise Lacking(f"{server.url} has loaded {others[0]}, which the guard would not unload")
            return server
    if (program := shutil.which("ollama")) is None:
        said = f"does not answer: {named}" if named else "names none"
        raise Lacking(f"no ollama is installed, and OLLAMA_HOST {said}")
    server = Ollama(f"http://127.0.0.1:{find_free_port()}", program, folder)
    try:
        server.start()
    except Unavailable as failed:
        raise Lacking(f"{program} does not run here: {failed}") from failed
    return server


def _address(named: str) -> str:
    """The URL that OLLAMA_HOST means: without a scheme it is HTTP, and then on Ollama's port if it names none."""
    if "://" in named:
        return named.rstrip("/")
    return f"http://{named}" if ":" in named else f"http://{named}:{PORT}"


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def served_by(ollama: Ollama) -> dict[str, object]:
    """Settings `models` of a stack: ours, under the names of their roles."""
    common = {"driver": "ollama", "url": ollama.url, "parallel": 4, "footprint_mib": 96}
    return {"world-judge": {**common, "tag": JUDGE}, "world-generator": {**common, "tag": GENERATOR}}
