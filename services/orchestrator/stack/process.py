"""One child process: started so that it dies with its parent, logged to a file, stopped in steps."""

import asyncio
import ctypes
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from shared.errors import Unavailable

PR_SET_PDEATHSIG = 1
POLL_S = 0.05

Sleep = Callable[[float], Awaitable[object]]


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
            preexec_fn=_death_signal(dies_by),
            # A group of its own: Ctrl-C reaches the supervisor alone, which then stops the children in order.
            process_group=0,
        )


def _death_signal(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    return functools.partial(_set_death_signal, ctypes.CDLL(None), number, os.getpid())


def _set_death_signal(libc: ctypes.CDLL, number: signal.Signals, parent: int) -> None:
    libc.prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # the parent died before the call above: nobody will send the signal
        os.kill(os.getpid(), signal.SIGKILL)


async def wait_ready(
    name: str,
    process: "subprocess.Popen[bytes]",
    ready: Callable[[], Awaitable[bool]],
    *,
    timeout_s: float = 60.0,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Return when the child answers; raise when it ends, or is not ready in time."""
    waited = 0.0
    while not await ready():
        if process.poll() is not None:
            raise Unavailable(f"`{name}` ended with status {process.returncode} before it was ready")
        if waited >= timeout_s:
            raise Unavailable(f"`{name}` was not ready after {timeout_s:.0f} s")
        await sleep(POLL_S)
        waited += POLL_S


async def stop(
    process: "subprocess.Popen[bytes]",
    *,
    by: signal.Signals = signal.SIGTERM,
    grace_s: float = 10.0,
    sleep: Sleep = asyncio.sleep,
) -> bool:
    """Ask, wait, then kill; false when it had to be killed."""
    if process.poll() is None:
        process.send_signal(by)
    waited = 0.0
    while process.poll() is None and waited < grace_s:
        await sleep(POLL_S)
        waited += POLL_S
    if process.poll() is not None:
        return True
    process.kill()
    process.wait()
    return False
