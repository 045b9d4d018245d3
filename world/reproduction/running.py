"""Run a stack of its own and an oracle, and upload the worlds."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mathrag.client import address, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.uploads import Sources
from mathrag.stack import control
from shared.ingest import paths
from shared.settings import REPOSITORY
from world.corpus import build, write
from world.experiments import find
from world.release import FILES
from world.reproduction.studies import MODELS, NOISES, World

ANSWER_S = 600.0
"""Long, because the report of an experiment reads every sample of its jobs."""
ATTEMPTS = 3
"""To start the stack."""


def furnish(folder: Path, worlds: Iterable[World]) -> None:
    """Write the corpora that are missing, each in a folder with the name of its world."""
    for world in worlds:
        place = folder / world.name
        if not (place / "dataset.jsonl").exists():
            write(build(world.seed, world.setting), place)


@contextmanager
def serve_stack(folder: Path) -> Iterator[Client]:
    """Run the folder's stack and an oracle for its corpora; both are stopped at the end."""
    port = _choose_port(folder)
    with _oracle(folder / "corpora", port), _stack(folder) as url, Client(url, timeout_s=ANSWER_S) as client:
        yield client


def _choose_port(folder: Path) -> int:
    """Return the oracle's port, which is chosen once, because it is part of the identity of its models."""
    file = folder / "mathrag.yaml"
    if not file.exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"models": _models(port)}, indent=1))
    kept: dict[str, Any] = json.loads(file.read_text())
    return int(kept["models"]["oracle-0"]["url"].split(":")[-1].removesuffix("/v1"))


def _models(port: int) -> dict[str, Any]:
    shipped = {
        f"world-{role}": {"driver": "process", "path": str(MODELS / file), "footprint_mib": 96}
        for role, file in FILES.items()
    }
    url = f"http://127.0.0.1:{port}/v1"
    return shipped | {f"oracle-{noise}": {"driver": "remote", "url": url, "parallel": 16} for noise in NOISES}


@contextmanager
def _oracle(corpora: Path, port: int) -> Iterator[None]:
    if _listens(port):
        raise Failed("conflict", f"port {port} is taken", hint="stop the other run, or the process that listens there")
    command = [sys.executable, "-m", "world.oracle", "--corpora", str(corpora), "--port", str(port)]
    running = subprocess.Popen(command, cwd=REPOSITORY)  # noqa: S603 - our own
    try:
        while not _listens(port):
            if running.poll() is not None:
                raise Failed("unavailable", "the oracle has ended", hint="its output is above")
            time.sleep(0.1)
        yield
    finally:
        running.terminate()
        running.wait()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _stack(folder: Path) -> Iterator[str]:
    """Start the stack; a stack that an earlier run left is stopped first, because its oracle has gone."""
    if control.find_holder(folder) is not None:
        _mathrag(folder, "down")
    try:
        _start(folder)
        running = address.read_state(folder)
        if running is None:
            raise Failed("unavailable", "the stack wrote no address", hint=f"less {folder}/logs/*")
        yield running.url
    finally:
        _mathrag(folder, "down")


def _start(folder: Path) -> None:
    """Start the stack, and try again if a service was not ready in time, as happens on a busy machine."""
    for left in reversed(range(ATTEMPTS)):
        try:
            _mathrag(folder, "up", "--detach", "--port", "0")
        except Failed:
            if not left:
                raise
        else:
            return


def _mathrag(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments, "--data-dir", str(folder)]
    environment = {**os.environ, "MATHRAG_CONFIG": str(folder / "mathrag.yaml")}
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    if ended.returncode:
        raise Failed("unavailable", f"`mathrag {arguments[0]}` failed", hint="its output is above")


def upload(client: Client, corpora: Path, worlds: Iterable[World]) -> None:
    """Upload the worlds that the service does not have."""
    for world in worlds:
        folder = corpora / world.name
        if find(client, texts.get("corpora", world.name)) is None:
            lines = Sources(paths.corpus_lines(folder / "corpus.jsonl"))
            client.send(texts.upload("corpora", lines, world.name))
        if find(client, texts.get("datasets", world.name)) is None:
            lines = Sources(paths.dataset_lines(folder / "dataset.jsonl"))
            client.send(texts.upload("datasets", lines, world.name))
