"""Find runners of an Ollama server that was killed, which keep their memory even after another server has started."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RUNNERS = ("llama-server", "ollama")
"""Programs of runners: the first since 0.30, `ollama runner` before."""
BLOBS = "sha256-"
"""Prefix of Ollama's model files, by which its `llama-server` processes differ from those of others."""
MIB = 1 << 20


class Orphan(NamedTuple):
    """A runner whose server has died."""

    pid: int
    said: str
    """Description of the runner, with the command that ends it."""


def find_orphans(url: str) -> list[Orphan]:
    """Find runners on this host whose server has died; empty if the server at `url` is on another host."""
    if urlsplit(url).hostname not in LOOPBACK:
        return []
    found = psutil.process_iter(["pid", "cmdline", "memory_info"])
    return [
        Orphan(process.pid, _describe(process)) for process in found if _is_runner(process) and not _has_server(process)
    ]


def _is_runner(process: psutil.Process) -> bool:
    command = process.info["cmdline"] or [""]
    return Path(command[0]).name in RUNNERS and any(BLOBS in argument for argument in command[1:])


def _has_server(process: psutil.Process) -> bool:
    """Tell whether its parent is an Ollama server; true for a process that is just ending."""
    try:
        parent = process.parent()
        return parent is not None and parent.name() == "ollama"
    except psutil.Error:
        return True


def _describe(process: psutil.Process) -> str:
    memory = process.info["memory_info"]
    held = f"{memory.rss // MIB} MiB" if memory else "its memory"
    name = Path(process.info["cmdline"][0]).name
    return f"{name} (pid {process.pid}) of an Ollama that was killed still holds {held}: kill {process.pid}"
