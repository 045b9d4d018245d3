"""Runners of an Ollama that was killed: they live on with their memory, whatever is started in its place."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RUNNERS = ("llama-server", "ollama")
"""Programs that hold weights: the first since 0.30, `ollama runner` before."""
BLOBS = "sha256-"
"""How the files of its models begin: a `llama-server` of somebody else has another model."""
MIB = 1 << 20


class Orphan(NamedTuple):
    """A runner whose server is gone."""

    pid: int
    said: str
    """A sentence about it, with the command that ends it."""


def orphans(url: str) -> list[Orphan]:
    """Runners on this host whose server is gone; none where the server at `url` is another host's."""
    if urlsplit(url).hostname not in LOOPBACK:
        return []
    found = psutil.process_iter(["pid", "cmdline", "memory_info"])
    return [
        Orphan(process.pid, _named(process)) for process in found if _is_runner(process) and not _has_server(process)
    ]


def _is_runner(process: psutil.Process) -> bool:
    command = process.info["cmdline"] or [""]
    return Path(command[0]).name in RUNNERS and any(BLOBS in argument for argument in command[1:])


def _has_server(process: psutil.Process) -> bool:
    """Whether its parent is an Ollama; of a process that is just ending it does not matter."""
    try:
        parent = process.parent()
        return parent is not None and parent.name() == "ollama"
    except psutil.Error:
        return True


def _named(process: psutil.Process) -> str:
    memory = process.info["memory_info"]
    held = f"{memory.rss // MIB} MiB" if memory else "its memory"
    name = Path(process.info["cmdline"][0]).name
    return f"{name} (pid {process.pid}) of an Ollama that was killed still holds {held}: kill {process.pid}"
