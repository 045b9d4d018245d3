"""Start a child process that dies with its parent and logs to a file; wait for it; stop it in steps."""

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

from shared.errors import Unavailable
from shared.orphans import die_with

POLL_S = 0.1


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


async def wait_ready(
    name: str,
    process: "subprocess.Popen[bytes]",
    ready: Callable[[], Awaitable[bool]],
    *,
    log: Path,
    timeout_s: float = 60.0,
    time: Time = REAL,
) -> None:
    """Wait until the child is ready.

    Raises:
        Unavailable: it ended, or was not ready within `timeout_s`.
    """
    deadline = time.now() + timeout_s
    while not await ready():
        if process.poll() is not None:
            raise Unavailable(
                f"`{name}` ended with status {process.returncode} before it was ready", hint=f"less {log}"
            )
        if time.now() >= deadline:
            raise Unavailable(f"`{name}` was not ready after {timeout_s:.0f} s", hint=f"less {log}")
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
