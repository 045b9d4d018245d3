"""Child processes with bounds on memory and processor time, alone and in pools."""

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TextIO

from shared.replies import Failure, FailureKind

# A pool of child processes, each of which is killed and replaced when an item exceeds its deadline.
#
# Plain subprocesses, not `multiprocessing`: a Celery prefork child may have no children of the latter kind.

START_S = 60.0
"""Longest start of a child, even on a busy machine."""
MAX_DEADLINES = 10
"""An item is given up after this many deadlines of wall time, even if it got less than one of processor time."""


class ChildDied(Exception):
    """The child ended without a reply; the message says how."""


class ChildPool:
    """Works on at most `size` items at once, each for at most `deadline_s` seconds of processor time.

    Children start when they are first needed (or at `start`) and are reused. Use a pool in one event loop whose thread
    outlives it: the kernel kills the children when the thread that started them ends.
    """

    def __init__(
        self,
        module: str,
        name: str,
        timeout: FailureKind,
        *,
        size: int,
        deadline_s: float,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`module` is what a child runs and must call `child_process.serve`; `name` names it in failures.

        `arguments` are appended to its command line. It inherits the environment unless one is given.
        """
        self.size = size
        self.deadline_s = deadline_s
        self._module = module
        self._name = name
        self._timeout = timeout
        self._arguments = tuple(arguments)
        self._environment = environment
        self._free = asyncio.Semaphore(size)
        self._idle: list[Process] = []
        self._all: set[Process] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the living children."""
        return frozenset(process.pid for process in self._all)

    async def start(self) -> None:
        """Start all children now, so that no first item waits for a start."""
        missing = self.size - len(self._all)
        self._idle += await asyncio.gather(*(self._spawn() for _ in range(missing)))

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | Failure:
        """Send `request` to a child and return its reply.

        The deadline counts the processor time that the child spends on the item. After it the kernel kills the child,
        and the reply is a failure of the pool's kind. A child that dies otherwise makes a BACKEND_ERROR, and one that
        gets too little processor time to finish within `MAX_DEADLINES` deadlines a TIMEOUT: both depend on the machine,
        so the runtime tries again. The next item gets a fresh child.

        Raises:
            RuntimeError: if the pool is closed.
        """
        async with self._free:
            process: Process | None = None
            longest_s = MAX_DEADLINES * self.deadline_s
            try:
                process = await self._take_child()
                reply = await asyncio.wait_for(self._exchange(process, request), longest_s)
            except TimeoutError:
                detail = f"no verdict within {longest_s:g} s, in which it got too little processor time"
                return await self._fail(process, FailureKind.TIMEOUT, detail)
            except ChildDied as died:
                if process is not None and process.returncode == -signal.SIGPROF:
                    detail = f"no verdict within {self.deadline_s:g} s of processor time"
                    return await self._fail(process, self._timeout, detail)
                return await self._fail(process, FailureKind.BACKEND_ERROR, str(died))
            except BaseException:  # cancelled: the child still works on an item whose reply is not wanted any more
                await self._discard(process)
                raise
            self._idle.append(process)
            return reply

    async def close(self) -> None:
        """Kill all children; items that they work on end as failures."""
        self._closed = True
        await asyncio.gather(*(self._discard(process) for process in list(self._all)))

    async def _fail(self, process: Process | None, kind: FailureKind, detail: str) -> Failure:
        await self._discard(process)
        return Failure(kind=kind, detail=detail)

    async def _take_child(self) -> Process:
        """Return an idle child that is still alive, or a new one."""
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            await self._discard(process)
        return await self._spawn()

    async def _spawn(self) -> Process:
        self._refuse_if_closed()
        command = (sys.executable, "-P", "-m", self._module, str(os.getpid()), str(self.deadline_s), *self._arguments)
        # Its own session, so that Ctrl-C reaches only the worker, which then closes the pool.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True, env=self._environment
        )
        self._all.add(process)
        try:
            await asyncio.wait_for(self._read_message(process), START_S)
            self._refuse_if_closed()
        except BaseException as error:
            await self._discard(process)
            if isinstance(error, TimeoutError):
                raise ChildDied(f"the {self._name} was not ready within {START_S:g} s") from error
            raise
        return process

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError(f"the pool of the {self._name} is closed")

    async def _discard(self, process: Process | None) -> None:
        """Kill a child if it is still alive, and reap it."""
        if process is None:
            return
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def _exchange(self, process: Process, request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None  # noqa: S101  # it was opened as a pipe
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
        except ConnectionError as error:
            raise ChildDied(f"the {self._name} closed its input") from error
        return await self._read_message(process)

    async def _read_message(self, process: Process) -> dict[str, Any]:
        """Read the child's next message.

        Raises:
            ChildDied: its output has ended.
        """
        assert process.stdout is not None  # noqa: S101  # it was opened as a pipe
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ChildDied(f"the {self._name} ended with exit status {await process.wait()}")
        message: dict[str, Any] = json.loads(line)
        return message


# The main loop of a `ChildPool`'s child: JSON lines on pipes, limits on memory and time, and no orphans.
#
# A child prints {"ready": true} when its libraries are loaded, then a reply for every request, in order.

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER, CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
MEMORY_BYTES = 2 << 30
"""Limit of address space; sympy needs about 70 MB, but a tower of powers would take all memory before the deadline."""


def serve(
    parent: int,
    deadline_s: float,
    load: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]],
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Answer the requests on stdin with the function that `load` returns, until stdin ends.

    The process ends with the process `parent`. An item that takes `deadline_s` seconds of processor time ends it by
    SIGPROF; waiting for a busy machine does not count. `memory_bytes` limits its address space.
    """
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    replies = claim_stdout()
    answer = load()  # before `ready`, so that it does not count against the first item's deadline
    send(replies, {"ready": True})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        reply = answer(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(replies, reply)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process `number` when the thread that started it ends (on Linux only).

    Call it in the child, with the pid of the process that started it: a fork does not inherit the request, and a
    parent that died before it is noticed here.
    """
    if _libc is None:
        return
    _libc.prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def leave_network() -> None:
    """Move this single-threaded process into a namespace without network, and let it gain no rights (on Linux only).

    A kernel that does not permit the first keeps the network. The kernel forgets what `die_with` asked.
    """
    if _libc is not None:
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
            sys.stderr.write("this kernel permits no user namespaces: a child keeps its network\n")


def claim_stdout() -> TextIO:
    """Return a stream to stdout for replies, and redirect all other output, of Python or C, to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return replies


def send(replies: TextIO, message: dict[str, Any]) -> None:
    """Write a message as one JSON line."""
    replies.write(json.dumps(message) + "\n")
    replies.flush()


class ProcessorTimeExceeded(BaseException):
    """The code has used up its processor time. No `Exception`, because such code may ignore exceptions in a loop."""


@contextmanager
def limit_processor_time(seconds: float) -> Iterator[None]:
    """Raise `ProcessorTimeExceeded` in the block once this process has used `seconds` of processor time in it.

    Waiting for a busy machine does not count. Python receives signals in the main thread only: in others, nothing is
    limited. The block must not await anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise ProcessorTimeExceeded(f"it did not end within {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
