"""A program with everything that it starts: model servers have shards and engines, which must not outlive them.

All of them carry a mark in their environment, which a fork and another session keep. By it they are found when the
program is gone and its children are nobody's any more.
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
from shared.redaction import redacted

STOP_S = 10.0
"""For a program to end its own children; then everything is killed."""
GONE_S = 5.0
"""For killed processes to be gone."""
LOOK_S = 0.02
WORDS = 20
"""Lines that are kept of what it says."""
LINE = 300
OWNER, TREE = "MATHRAG_SERVER_OWNER", "MATHRAG_SERVER_TREE"

_log = logging.getLogger(__name__)


class Tree:
    """A running program; `start` makes one."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._said: deque[str] = deque(maxlen=WORDS)
        self._listening = asyncio.create_task(self._listen(output))

    @property
    def pid(self) -> int:
        """The program's own process."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The program's return code."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How the program ended: "with 1", or "by SIGKILL"."""
        status = self.exit_status
        if status is None or status >= 0:
            return f"with {status}"
        killed_by = signal.Signals(-status)
        why = ", an instruction that this processor lacks: take another build" if killed_by is signal.SIGILL else ""
        return f"by {killed_by.name}{why}"

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self.exit_status is None

    async def exited(self) -> None:
        """Return when the program is gone."""
        await self._process.wait()

    async def last_words(self) -> str:
        """What it said last, on one line, without secrets."""
        if not self.alive:  # the rest of the pipe; children that live on may keep it open
            await asyncio.wait([self._listening], timeout=1)
        return redacted(" | ".join(self._said)) or "nothing"

    async def end(self) -> None:
        """End the program and everything that it has started; returns when all of it is gone.

        Raises:
            DriverError: something of it does not end.
        """
        if self.alive:
            self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_S)
        await asyncio.to_thread(_end, TREE, self._mark)
        await self._process.wait()
        self._listening.cancel()
        await asyncio.wait([self._listening])

    def memory_mib(self) -> float | None:
        """Proportional set size of all its processes."""
        found = 0
        for process in marked(TREE, self._mark):
            with suppress(psutil.Error):
                found += process.memory_full_info().pss
        return found / 2**20 if found else None

    async def _listen(self, output: int) -> None:
        """Read what it says, so that it never waits for a reader; a line that is too long is cut."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
        try:
            while read := await reader.read(1 << 16):
                lines = read.decode(errors="replace").splitlines()
                self._said.extend(line[:LINE] for line in lines if line.strip())
                _log.debug("process %d: %s", self.pid, lines)
        finally:
            transport.close()


async def start(arguments: Sequence[str], environment: Mapping[str, str], owner: str) -> Tree:
    """Start a program that ends with this process; it gets our environment, but for our own settings and secrets.

    Raises:
        DriverError: it cannot be started.
    """
    mark = secrets.token_urlsafe(12)
    # A pipe of our own: with one of asyncio's, whoever waits for the program waits for all its children, too.
    output, end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**inherited(), **environment, OWNER: owner, TREE: mark},
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
    return Tree(process, output, mark)


def inherited() -> dict[str, str]:
    """Our environment as programs of others get it: without our settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}


def marked(name: str, value: str) -> Iterator[psutil.Process]:
    """Processes with this in their environment."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(name) == value:
            yield process


async def end_leftovers(owner: str) -> None:
    """End what an owner has started, whatever it is doing.

    Raises:
        DriverError: something of it does not end.
    """
    await asyncio.to_thread(_end, OWNER, owner)


def _end(name: str, value: str) -> None:
    """Kill until none is left: one may have forked since the last look. Zombies have no environment."""
    deadline = time.monotonic() + GONE_S
    while found := list(marked(name, value)):
        if time.monotonic() > deadline:
            raise DriverError(f"processes {[process.pid for process in found]} do not end; end them by hand")
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(LOOK_S)
