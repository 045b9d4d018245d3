"""Find the processes of Ollama's runners on this host: of a loaded model, and of a server that was killed.

The latter keep their memory even after another server has started.
"""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RUNNERS = ("llama-server", "ollama")
"""Programs of runners: the first since 0.30, `ollama runner` before."""
WRAPPED = re.compile(r"\.*(.+?)(-wrap[a-z]*)*")
"""A program's name as NixOS wraps it, maybe twice and then cut to 15 characters: `.ollama-wrapped`, `..ollama-wrappe`.
"""
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
    orphans = []
    for process in (each for each in _list_runners(url) if not _has_server(each)):
        memory, name = process.info["memory_info"], Path(process.info["cmdline"][0]).name
        held = f"{memory.rss // MIB} MiB" if memory else "its memory"
        said = f"{name} (pid {process.pid}) of an Ollama that was killed still holds {held}: kill {process.pid}"
        orphans.append(Orphan(process.pid, said))
    return orphans


def find_runners(url: str, weights: str) -> list[psutil.Process]:
    """Find the runners on this host that hold this file of weights (`sha256-...`) for a server that is alive.

    Empty if the server at `url` is on another host, or in a container whose processes are not visible here.
    """
    return [process for process in _list_runners(url, weights) if _has_server(process)]


def is_running(runner: psutil.Process) -> bool:
    """Tell whether this very process still runs, and not another one that was given its id."""
    try:
        return runner.is_running() and runner.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _list_runners(url: str, weights: str = BLOBS) -> list[psutil.Process]:
    if urlsplit(url).hostname not in LOOPBACK:
        return []
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "memory_info"]):
        program, *arguments = process.info["cmdline"] or [""]
        if _unwrap(Path(program).name) in RUNNERS and any(weights in argument for argument in arguments):
            found.append(process)
    return found


def _has_server(process: psutil.Process) -> bool:
    """Tell whether its parent is an Ollama server; true for a process that is just ending."""
    try:
        parent = process.parent()
        return parent is not None and _unwrap(parent.name()) == "ollama"
    except psutil.Error:
        return True


def _unwrap(program: str) -> str:
    found = WRAPPED.fullmatch(program)
    return found[1] if found else program
