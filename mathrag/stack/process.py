"""Start a child process that dies with its parent and logs to a file; wait for it, see whether it works, stop it.

How long a start takes says nothing on a machine that is short of processors, so no limit here is one of the clock:
they count the time in which a process does nothing, and the processor time that it has used.
"""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from shared.errors import Unavailable
from shared.orphans import die_with

POLL_S = 0.1
IDLE_S = 60.0
"""Longest time without work of a child that starts."""
STARTING_S = 600.0
"""Longest processor time of a child that starts: one that works for ever is caught by this."""
LOOK_S = 1.0
"""Seconds between two looks at what a process does: each reads all processes of the machine."""
LONGEST_LOOK_S = 10.0
"""A longer time between two looks counts as this: then it was the supervisor that did not run."""
WORKING = 0.02
"""Share of a processor from which on a process works; timers and heartbeats take less."""
BUSY = frozenset((psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_TRACING_STOP))
"""States of a process that works, waits for a processor or a disk, or is held by a debugger."""


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies_by: signal.Signals = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Start a child that receives `dies_by` when the thread that called this ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the commands come from our own table
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            preexec_fn=functools.partial(die_with, os.getpid(), dies_by),
            # In a separate group, Ctrl-C reaches only the supervisor, which then stops the children in order.
            process_group=0,
        )


class Time(NamedTuple):
    """The clock and the sleep function, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


REAL = Time()


class Effort:
    """What a process and its children do while the process owes an answer."""

    def __init__(self, pid: int, time: Time) -> None:
        self.idle_s = 0.0
        """Seconds in which they did nothing, or the process was stopped."""
        self.used_s = 0.0
        """Processor time of the process itself, at most one processor's: an event loop has no more."""
        self._pid = pid
        self._time = time
        self._looked = time.now()
        self._last = _read_usage(pid)

    def look(self) -> None:
        """Add what they did since the last look."""
        passed = self._time.now() - self._looked
        if passed < LOOK_S:
            return
        last, self._last = self._last, _read_usage(self._pid)
        self._looked += passed
        works = self._last.is_busy or self._last.tree_s - last.tree_s >= WORKING * passed
        if self._last.is_stopped or not works:
            self.idle_s += min(passed, LONGEST_LOOK_S)
        self.used_s += min(max(self._last.own_s - last.own_s, 0.0), passed)


class _Usage(NamedTuple):
    own_s: float = 0.0
    tree_s: float = 0.0
    is_busy: bool = False
    is_stopped: bool = False


def _read_usage(pid: int) -> _Usage:
    """Return the processor time of a process and of its tree, ended children included, and its state."""
    try:
        process = psutil.Process(pid)
        own, state = process.cpu_times(), process.status()
        times, states = [own], {state}
        for each in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                times.append(each.cpu_times())
                states.add(each.status())
        return _Usage(
            own_s=own.user + own.system,
            tree_s=sum(sum(each[:4]) for each in times),
            is_busy=not BUSY.isdisjoint(states),
            is_stopped=state == psutil.STATUS_STOPPED,
        )
    except psutil.Error:
        return _Usage()  # it has just ended


async def wait_ready(
    name: str,
    process: "subprocess.Popen[bytes]",
    ready: Callable[[], Awaitable[bool]],
    *,
    log: Path,
    timeout_s: float = IDLE_S,
    time: Time = REAL,
) -> None:
    """Wait until the child is ready, for as long as it works.

    Raises:
        Unavailable: it ended, did nothing for `timeout_s`, or worked for `STARTING_S` without becoming ready.
    """
    effort = Effort(process.pid, time)
    while not await ready():
        if process.poll() is not None:
            raise Unavailable(
                f"`{name}` ended with status {process.returncode} before it was ready", hint=f"less {log}"
            )
        effort.look()
        if effort.idle_s >= timeout_s:
            raise Unavailable(f"`{name}` is not ready, and did nothing for {timeout_s:.0f} s", hint=f"less {log}")
        if effort.used_s >= STARTING_S:
            raise Unavailable(f"`{name}` is not ready after {STARTING_S:.0f} s of processor time", hint=f"less {log}")
        await time.sleep(POLL_S)


async def stop(
    process: "subprocess.Popen[bytes]",
    *,
    by: signal.Signals = signal.SIGTERM,
    grace_s: float = 10.0,
    time: Time = REAL,
) -> None:
    """Signal the process, wait for `grace_s`, then kill it and everything left in its process group."""
    if process.poll() is None:
        process.send_signal(by)
    deadline = time.now() + grace_s
    while process.poll() is None and time.now() < deadline:
        await time.sleep(POLL_S)
    kill_group(process)
    process.wait()


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the child's process group: its own children may outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill the child and all that it started, whatever their groups: stopped ones would not hear that it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for each in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
