"""A stack of its own with an oracle beside it, and the experiments on it, which go on where they were."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from mathrag.client import experiments, stack_state, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.experiments import Experiment
from mathrag.client.request import Request, T
from mathrag.client.sources import Sources
from mathrag.stack import lock
from shared.ingest import paths
from shared.settings import REPOSITORY
from world.corpus import build, write
from world.release import FILES
from world.reproduction.studies import MODELS, NOISES, Study, World

ANSWER_S = 600.0
"""The report of an experiment reads every sample of its jobs."""
POLL_S = 2.0
ATTEMPTS = 3
"""To start the stack."""
SAID_S = 15.0
"""Between two lines about a study's progress."""


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
    found: dict[str, Any] = json.loads(file.read_text())
    return int(found["models"]["oracle-0"]["url"].split(":")[-1].removesuffix("/v1"))


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
        if _found(client, texts.get("corpora", world.name)) is None:
            lines = Sources(paths.corpus_lines(folder / "corpus.jsonl"))
            client.send(texts.upload("corpora", lines, world.name))
        if _found(client, texts.get("datasets", world.name)) is None:
            lines = Sources(paths.dataset_lines(folder / "dataset.jsonl"))
            client.send(texts.upload("datasets", lines, world.name))


def _found(client: Client, request: Request[T]) -> T | None:
    """What is there, or None."""
    try:
        return client.send(request)
    except Failed as missing:
        if missing.kind != "not_found":
            raise
        return None


def run(client: Client, study: Study) -> dict[str, Any]:
    """The experiment's report and seconds, once it has ended: submitted, resumed, or only read.

    Raises:
        Failed: jobs of it failed, also when they were resumed.
    """
    document = study.document()
    name = document["name"]
    found = _found(client, experiments.get(name))
    if found is None:
        client.send(experiments.submit(document))
    elif found["state"] in ("failed", "cancelled"):
        client.send(experiments.change(name, "resume"))
    ended = _watched(client, name, study)
    if ended["state"] != "completed":
        raise Failed("internal", f"{name} is {ended['state']}: {ended['jobs']}", hint="run it again")
    began, last = datetime.fromisoformat(ended["created_at"]), datetime.fromisoformat(ended["ended_at"])
    return {"report": client.send(experiments.report(name)), "seconds": (last - began).total_seconds()}


def _watched(client: Client, name: str, study: Study) -> Experiment:
    """Say how far it is until it has ended."""
    said = 0.0
    while True:
        found = client.send(experiments.get(name))
        ended = found["state"] not in ("running", "cancelling")
        if ended or time.monotonic() - said > SAID_S:
            counts, said = found["request_counts"], time.monotonic()
            done = counts["total"] - counts["in_progress"]
            left = "" if ended or found["eta_seconds"] is None else f", about {found['eta_seconds']} s left"
            print(f"  {study.name}: {done:,} of {counts['total']:,} samples{left}", flush=True)
        if ended:
            return found
        time.sleep(POLL_S)
