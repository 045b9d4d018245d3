"""Process trees: a model server with its shards and engines, none of which may outlive it.

All processes of a tree carry a mark in their environment, which forks and new sessions inherit. By the mark they are
found even when the program has exited and its children were reparented.
"""

import asyncio
import logging
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import psutil

from services.guard.drivers.ports import DriverError
from shared.orphans import die_with
from shared.redaction import redact

STOP_S = 10.0
"""For a program to end its children itself; then all processes are killed."""
GONE_S = 5.0
"""For killed processes to be gone."""
POLL_S = 0.02
MAX_LINES = 20
"""Lines of the program's output that are kept."""
MAX_LINE = 300
OWNER, TREE = "MATHRAG_SERVER_OWNER", "MATHRAG_SERVER_TREE"

_log = logging.getLogger(__name__)


class ProcessTree:
    """A program that `start` has started, with its child processes."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._last_lines: deque[str] = deque(maxlen=MAX_LINES)
        self._reader = asyncio.create_task(self._read_output(output))

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Return code of the program."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How the program ended, such as "with 1" or "by SIGKILL"."""
        status = self.exit_status
        if status is None or status >= 0:
            return f"with {status}"
        killed_by = signal.Signals(-status)
        why = ", an instruction that this processor lacks: install another build" if killed_by is signal.SIGILL else ""
        return f"by {killed_by.name}{why}"

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self.exit_status is None

    async def wait_exited(self) -> None:
        """Return when the program has exited."""
        await self._process.wait()

    async def read_last_output(self) -> str:
        """Return the last lines of its output, on one line and without secrets."""
        if not self.alive:  # the rest of the pipe; children that live on may keep it open
            await asyncio.wait([self._reader], timeout=1)
        return redact(" | ".join(self._last_lines)) or "nothing"

    async def end(self) -> None:
        """End the program and its children, and return when all have exited.

        Raises:
            DriverError: a process does not end.
        """
        if self.alive:
            self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_S)
        await asyncio.to_thread(_kill_marked, TREE, self._mark)
        await self._process.wait()
        self._reader.cancel()
        await asyncio.wait([self._reader])

    def memory_mib(self) -> float | None:
        """Return the proportional set size of all its processes in MiB; None if nothing can be measured."""
        found = 0
        for process in find_marked(TREE, self._mark):
            with suppress(psutil.Error):
                found += process.memory_full_info().pss
        return found / 2**20 if found else None

    async def _read_output(self, output: int) -> None:
        """Read the program's output, so that it never blocks on a full pipe; lines are cut at `MAX_LINE`."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
        try:
            while read := await reader.read(1 << 16):
                lines = read.decode(errors="replace").splitlines()
                self._last_lines.extend(line[:MAX_LINE] for line in lines if line.strip())
                _log.debug("process %d: %s", self.pid, lines)
        finally:
            transport.close()


async def start(arguments: Sequence[str], environment: Mapping[str, str], owner: str) -> ProcessTree:
    """Start a program that ends with this process; it inherits the environment without our settings and secrets.

    Raises:
        DriverError: it cannot be started.
    """
    mark = secrets.token_urlsafe(12)
    # A pipe of our own: with one of asyncio's, `wait` would also wait for all children that hold it open.
    output, end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**inherit_environment(), **environment, OWNER: owner, TREE: mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=end,
            stderr=end,
            start_new_session=True,
            # SIGTERM, so that it takes its children along.
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
    except OSError as error:
        os.close(output)
        raise DriverError(f"cannot be started: {arguments[0]}: {error.strerror}; correct `command`") from error
    finally:
        os.close(end)
    return ProcessTree(process, output, mark)


def inherit_environment() -> dict[str, str]:
    """Return this process's environment without MATHRAG_* settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}


def find_marked(name: str, value: str) -> Iterator[psutil.Process]:
    """Find the processes that have `name` set to `value` in their environment."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(name) == value:
            yield process


async def end_leftovers(owner: str) -> None:
    """Kill all processes that `owner` has started.

    Raises:
        DriverError: a process does not end.
    """
    await asyncio.to_thread(_kill_marked, OWNER, owner)


def _kill_marked(name: str, value: str) -> None:
    """Kill until none is left, since one may have forked meanwhile. Zombies have no environment and do not count."""
    deadline = time.monotonic() + GONE_S
    while found := list(find_marked(name, value)):
        if time.monotonic() > deadline:
            raise DriverError(f"processes {[process.pid for process in found]} do not end; end them by hand")
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(POLL_S)
