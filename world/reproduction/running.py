"""A stack of its own with an oracle beside it, and the worlds that it is asked about."""

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

from mathrag.client import stack_state, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.sources import Sources
from mathrag.stack import lock
from shared.ingest import paths
from shared.settings import REPOSITORY
from world.corpus import build, write
from world.experiments import found
from world.release import FILES
from world.reproduction.studies import MODELS, NOISES, World

ANSWER_S = 600.0
"""The report of an experiment reads every sample of its jobs."""
ATTEMPTS = 3
"""To start the stack."""


def furnish(folder: Path, worlds: Iterable[World]) -> None:
    """Write what is not there yet: corpora by the name of their world."""
    for world in worlds:
        place = folder / world.name
        if not (place / "dataset.jsonl").exists():
            write(build(world.seed, world.setting), place)


@contextmanager
def served(folder: Path) -> Iterator[Client]:
    """The stack of the folder, with the oracle that knows its corpora; both are stopped in the end."""
    port = _configured(folder)
    with _oracle(folder / "corpora", port), _stack(folder) as url, Client(url, ANSWER_S) as client:
        yield client


def _configured(folder: Path) -> int:
    """The oracle's port, which is part of what its models are: it is chosen once."""
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
        raise Failed("conflict", f"port {port} is taken", hint="does this run already? Else: end what listens there")
    command = [sys.executable, "-m", "world.oracle", "--corpora", str(corpora), "--port", str(port)]
    running = subprocess.Popen(command, cwd=REPOSITORY)  # noqa: S603 - our own
    try:
        while not _listens(port):
            if running.poll() is not None:
                raise Failed("unavailable", "the oracle has ended", hint="its words are above")
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
    """What a run before it left is stopped first: its oracle is gone."""
    if lock.holder(folder) is not None:
        _mathrag(folder, "down")
    try:
        _started(folder)
        running = stack_state.read(folder)
        if running is None:
            raise Failed("unavailable", "the stack did not say where it runs", hint=f"less {folder}/logs/*")
        yield running.url
    finally:
        _mathrag(folder, "down")


def _started(folder: Path) -> None:
    """On a busy machine a service may not be ready in its time: that is tried again."""
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
        raise Failed("unavailable", f"`mathrag {arguments[0]}` failed", hint="its words are above")


def upload(client: Client, corpora: Path, worlds: Iterable[World]) -> None:
    """Those that the service does not have."""
    for world in worlds:
        folder = corpora / world.name
        if found(client, texts.get("corpora", world.name)) is None:
            lines = Sources(paths.corpus_lines(folder / "corpus.jsonl"))
            client.send(texts.upload("corpora", lines, world.name))
        if found(client, texts.get("datasets", world.name)) is None:
            lines = Sources(paths.dataset_lines(folder / "dataset.jsonl"))
            client.send(texts.upload("datasets", lines, world.name))
