"""Try to import a plug-in in a process of its own, which is killed when it takes too long.

What an import does cannot be undone, and what hangs in it cannot be stopped: no service imports a plug-in that has not
passed here.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO

import msgspec

from shared.contracts.plugins import PluginPin, State
from shared.plugins.catalogue import Plugin
from shared.redaction import redact

PROGRAM = "shared.runtime.plugin_trial"
AT_ONCE = 2
LONGEST = 65_536
"""Maximum size of a verdict, in bytes."""
LONGEST_DETAIL = 500


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a trial, which its process prints as JSON."""

    state: State
    detail: str = ""
    declares: dict[str, str | float | bool | None] = {}
    """What the plug-in declares about itself, for services that do not import it."""


_verdicts: dict[PluginPin, TrialResult] = {}
"""Verdicts by code, so that a process tries each once."""


def try_all(plugins: Iterable[Plugin], limit_s: float) -> list[TrialResult]:
    """Return the verdict on each, in order; at most two run at once, each for up to `limit_s` seconds."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda plugin: _verdict(plugin, limit_s), plugins))


def _verdict(plugin: Plugin, limit_s: float) -> TrialResult:
    if plugin.pin not in _verdicts:
        _verdicts[plugin.pin] = _try(plugin, limit_s)
    return _verdicts[plugin.pin]


def _try(plugin: Plugin, limit_s: float) -> TrialResult:
    words = [sys.executable, "-m", PROGRAM, str(os.getpid()), plugin.kind.value, plugin.name, plugin.value]
    # A file instead of a pipe: what the import forks may hold a pipe open for ever.
    with tempfile.TemporaryFile() as said:
        # What it prints is its own business, and its session is killed whole.
        child = subprocess.Popen(  # noqa: S603 - the name of an entry point, which is an identifier
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            detail = f"its import took longer than {limit_s:g} s (`plugins.import_s`): do less while it is imported"
            return TrialResult(state=State.TIMED_OUT, detail=detail)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return _read(said, status)


def _read(said: IO[bytes], status: int) -> TrialResult:
    said.seek(0)
    try:
        verdict = msgspec.json.decode(said.read(LONGEST), type=TrialResult)
    except ValueError:
        detail = f"its import ended the process with status {status}: a module must not end what imports it"
        return TrialResult(state=State.FAILED, detail=detail)
    words = "".join(char if char.isprintable() else " " for char in redact(verdict.detail))
    return msgspec.structs.replace(verdict, detail=words[:LONGEST_DETAIL])
