"""Start, keep and stop the processes of the stack, and find leftover ones.

On a machine with too few processors, a start can take long. So the limits here do not apply to elapsed time, but to the
time in which a process does nothing, and to the processor time that it uses.
"""

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2
import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mathrag.client import address
from mathrag.errors import MathragError, Unavailable
from shared.calls import Lane
from shared.processes.children import die_with
from shared.runtime import heartbeats

POLL_S = 0.1
IDLE_S = 60.0
"""Longest idle time of a starting child, in seconds."""
STARTING_S = 600.0
"""Longest processor time of a starting child, in seconds; it stops a child that works for ever."""
LOOK_S = 1.0
"""Seconds between two measurements of a process; each reads all processes of the machine."""
LONGEST_LOOK_S = 10.0
"""Longest time that counts between two measurements; after a longer one, it was the supervisor that did not run."""
WORKING = 0.02
"""Smallest share of a processor that counts as work; timers and heartbeats take less."""
BUSY = frozenset((psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_TRACING_STOP))
"""States of a process that works, waits for a processor or a disk, or is stopped by a debugger."""


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies_by: signal.Signals = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Start a child that receives `dies_by` when the calling thread ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the commands come from our own table
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            preexec_fn=partial(die_with, os.getpid(), dies_by),
            # In a separate group, Ctrl-C reaches only the supervisor, which then stops the children in order.
            process_group=0,
        )


class Time(NamedTuple):
    """The clock and the sleep function, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


REAL = Time()


class Effort:
    """Measures the work of a process and its children while the process owes an answer."""

    def __init__(self, pid: int, time: Time) -> None:
        self.idle_s = 0.0
        """Seconds in which they were idle, or the process was stopped."""
        self.used_s = 0.0
        """Processor time of the process itself, limited to one processor: an event loop uses no more."""
        self._pid = pid
        self._time = time
        self._looked = time.now()
        self._last = _read_usage(pid)

    def measure(self) -> None:
        """Add the work since the last measurement."""
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
    """Return the processor time of a process and of its tree, including ended children, and its state."""
    try:
        process = psutil.Process(pid)
        own, state = process.cpu_times(), process.status()
        times, states = [own], {state}
        for each in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                times.append(each.cpu_times())
                states.add(each.status())
        return _Usage(
            own_s=own.user + own.system,
            tree_s=sum(sum(each[:4]) for each in times),
            is_busy=not BUSY.isdisjoint(states),
            is_stopped=state == psutil.STATUS_STOPPED,
        )
    except psutil.Error:
        return _Usage()  # the process has just ended


async def wait_ready(
    name: str,
    process: "subprocess.Popen[bytes]",
    ready: Callable[[], Awaitable[bool]],
    *,
    log: Path,
    timeout_s: float = IDLE_S,
    time: Time = REAL,
) -> None:
    """Wait until the child is ready, as long as it works.

    Raises:
        Unavailable: the child ended, was idle for `timeout_s`, or worked for `STARTING_S` without becoming ready.
    """
    effort = Effort(process.pid, time)
    while not await ready():
        if process.poll() is not None:
            raise Unavailable(
                f"`{name}` ended with status {process.returncode} before it was ready", hint=f"read its log: {log}"
            )
        effort.measure()
        if effort.idle_s >= timeout_s:
            raise Unavailable(
                f"`{name}` is not ready, and has done nothing for {timeout_s:.0f} s", hint=f"read its log: {log}"
            )
        if effort.used_s >= STARTING_S:
            raise Unavailable(
                f"`{name}` is not ready after {STARTING_S:.0f} s of processor time", hint=f"read its log: {log}"
            )
        await time.sleep(POLL_S)


async def stop(
    process: "subprocess.Popen[bytes]",
    *,
    by: signal.Signals = signal.SIGTERM,
    grace_s: float = 10.0,
    time: Time = REAL,
) -> None:
    """Signal the process, wait for `grace_s`, then kill the process and the rest of its process group."""
    if process.poll() is None:
        process.send_signal(by)
    deadline = time.now() + grace_s
    while process.poll() is None and time.now() < deadline:
        await time.sleep(POLL_S)
    kill_group(process)
    process.wait()


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the child's process group, because its own children may outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill the child and all its descendants in any process group; stopped ones would not notice its end."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for each in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()


_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
HEALTHY_S = 30.0
HUNG_S = 30.0
"""Longest time in which a ready child neither answers nor works, in seconds."""
LOOPING_S = 60.0
"""Longest processor time that a ready child uses without answering, in seconds."""

Phase = Literal["starting", "ready", "backing-off", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process that the supervisor keeps running: its command, and the tests of its readiness."""

    name: str
    service: str = ""
    """Service of the process; the workers of one service differ only in their names."""
    command: Callable[[], Sequence[str]]
    ready: Callable[[int], Awaitable[bool]]
    """Returns, for a process id, True if the child is ready to work."""
    answers: Callable[[int], Awaitable[bool]] | None = None
    """Returns, for the id of a ready process, True if it still answers; None if it is never asked."""
    starts_with_previous: bool = False
    """The child starts together with the previous row of the table, not after it."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables in addition to the supervisor's; they have addresses with passwords, which process lists do
    not show."""
    prepare: Callable[[], None] | None = None
    """Called before every start."""
    port: int | None = None
    ready_s: float = IDLE_S
    """Longest idle time of the starting child, in seconds."""
    stop_by: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0
    dies_by: signal.Signals = signal.SIGKILL
    """Signal that the kernel sends to the child when the supervisor dies."""


class BackOff:
    """Pauses before restarts, in seconds: each pause doubles until the child was healthy for `HEALTHY_S`."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE_S

    def choose_pause(self, healthy_s: float) -> float:
        """Return the pause after a child that was ready for `healthy_s`."""
        if healthy_s >= HEALTHY_S:
            self._pause = FIRST_PAUSE_S
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_S)
        return pause


class Keeper:
    """Keeps one child running, and calls `changed` when its phase changes."""

    def __init__(self, child: Child, *, log: Path, changed: Callable[[], None], time: Time) -> None:
        self.child = child
        self.log = log
        self.phase: Phase = "stopped"
        self.restarts = 0
        self._changed = changed
        self._time = time
        self._process: subprocess.Popen[bytes] | None = None
        self._back_off = BackOff()
        self._unanswered: Effort | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running child; None if it does not run."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the child and wait until it is ready.

        Raises:
            Unavailable: the child ended, or does not become ready.
        """
        await self._kill_leftovers()
        self._unanswered = None
        self._enter("starting")
        if self.child.prepare:
            self.child.prepare()
        started = spawn(
            self.child.command(), log=self.log, environment=self.child.environment, dies_by=self.child.dies_by
        )
        self._process = started
        began = self._time.now()
        _log.info("%s: starts as process %d", self.child.name, started.pid)
        self._changed()
        ready = partial(self.child.ready, started.pid)
        await wait_ready(self.child.name, started, ready, log=self.log, timeout_s=self.child.ready_s, time=self._time)
        _log.info("%s: ready after %.1f s", self.child.name, self._time.now() - began)
        self._enter("ready")

    async def check(self) -> None:
        """Ask a ready child for an answer, and kill it if it hangs; `keep` then starts it again.

        A child hangs if it does not answer and is idle, or if it uses much processor time without answering. A child
        that is slow because the machine is overloaded does not hang.
        """
        asked = self._process
        if self.phase != "ready" or asked is None or self.child.answers is None:
            return
        try:
            answered = await self.child.answers(asked.pid)
        except MathragError:
            answered = True
        if asked is not self._process or asked.poll() is not None:
            return
        if answered:
            self._unanswered = None
            return
        effort = self._unanswered = self._unanswered or Effort(asked.pid, self._time)
        effort.measure()
        if effort.idle_s >= HUNG_S:
            self._kill_hung(asked, f"was idle for {effort.idle_s:.0f} s")
        elif effort.used_s >= LOOPING_S:
            self._kill_hung(asked, f"used {effort.used_s:.0f} s of processor time")

    def _kill_hung(self, hung: "subprocess.Popen[bytes]", how: str) -> None:
        _log.warning("%s: process %d does not answer and %s; killing it", self.child.name, hung.pid, how)
        kill_tree(hung)

    async def start_and_keep(self) -> None:
        """Start the child, again after each failed start, and keep it running until cancelled."""
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - a failing child must not end the others
            _log.warning("%s: %s", self.child.name, error)
            await self._restart(healthy_s=0.0)
        await self.keep()

    async def keep(self) -> None:
        """Restart the child whenever it ends, until cancelled."""
        while True:
            ready_at = self._time.now()
            while self._process is not None and self._process.poll() is None:
                await self._time.sleep(POLL_S)
            if self._process is not None:
                _log.warning("%s: ended with status %s", self.child.name, self._process.returncode)
            await self._restart(healthy_s=self._time.now() - ready_at)

    async def _restart(self, healthy_s: float) -> None:
        while True:
            await self._kill_leftovers()  # the children of the dead child must not run on during the pause
            self._enter("backing-off")
            pause = self._back_off.choose_pause(healthy_s)
            _log.info("%s: starts again in %.1f s", self.child.name, pause)
            await self._time.sleep(pause)
            self.restarts += 1
            try:
                return await self.start()
            except Exception as error:  # noqa: BLE001 - a failing child must not end the others
                _log.warning("%s: %s", self.child.name, error)
                healthy_s = 0.0

    async def _kill_leftovers(self) -> None:
        if self._process is not None:
            await stop(self._process, by=signal.SIGKILL, time=self._time)
            self._process = None  # the system may now reuse its process and group ids

    async def stop(self) -> None:
        """End the child: signal it, wait for `grace_s`, then kill it."""
        if self._process is not None:
            await stop(self._process, by=self.child.stop_by, grace_s=self.child.grace_s, time=self._time)
        self._enter("stopped")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._changed()


PATIENCE_S = 2.0
"""Seconds that the readiness test waits for an answer."""
ANSWER_S = 5.0
"""Seconds that a ready service may take to answer, because it may be busy."""
WRITTEN = "mathrag:supervisor:written"
"""Key in Redis that is written to test that heartbeats can be written."""

Test = Callable[[int], Awaitable[bool]]
"""Test of the process with this id: a service answers on its port; a worker has a heartbeat in Redis."""


def make_http_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that succeeds when GET /healthz answers 200."""

    async def is_ready(_pid: int) -> bool:
        try:
            return await _get_health(host, port, PATIENCE_S) == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    return is_ready


def make_http_answer_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that fails when no process listens for GET /healthz, or does not answer in time."""

    async def answers(_pid: int) -> bool:
        try:
            await _get_health(host, port, ANSWER_S)
        except (httpx2.TimeoutException, httpx2.ConnectError):
            return False
        except httpx2.HTTPError:
            return True  # a service with too many connections closes new ones at once
        return True

    return answers


async def _get_health(host: str, port: int, patience_s: float) -> int:
    # trust_env=False: requests to this machine must not go through a proxy that the environment sets.
    # verify=False: http:// needs no certificates, and loading them takes 70 ms of processor time.
    async with httpx2.AsyncClient(timeout=patience_s, trust_env=False, verify=False) as client:
        return (await client.get(f"http://{host}:{port}/healthz")).status_code


def make_heartbeat_test(redis_url: str, lane: Lane) -> Test:
    """Return a test that succeeds when the worker with the process id has written its heartbeat."""

    async def is_ready(pid: int) -> bool:
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                return bool(await client.exists(heartbeats.key(lane, pid)))
            except RedisError:
                return False

    return is_ready


def make_heartbeat_answer_test(redis_url: str, lane: Lane) -> Test:
    """Return a test that fails when Redis accepts heartbeats but has none of the worker, or when its child is stopped.

    The main process writes the heartbeat, and it keeps running while the working child is stopped. Celery kills a child
    that works too long, because it limits the time of a tick.
    """

    async def answers(pid: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            if any(child.status() == psutil.STATUS_STOPPED for child in psutil.Process(pid).children()):
                return False
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                if await client.exists(heartbeats.key(lane, pid)):
                    return True
                await client.set(WRITTEN, "", ex=heartbeats.TTL_S)  # a full Redis also rejects heartbeats
            except RedisError:
                return True
            return False

    return answers


BOOT = Path("/proc/sys/kernel/random/boot_id")
"""File with an id that changes at every boot of the machine."""
START = 19
"""Index of the start time among the fields of /proc/PID/stat after the name: proc(5), field 22."""


def read_birth(pid: int) -> str:
    """Return the boot id and the start in clock ticks since boot; they distinguish processes with the same id.

    Setting the clock does not change these ticks. Return "" if the process does not exist.
    """
    try:
        if not BOOT.exists():
            return str(psutil.Process(pid).create_time())
        # The name is in brackets and may contain any character, including brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return ""
    return f"{BOOT.read_text().strip()} {fields[START]}"


LEFTOVER_PATIENCE_S = 10.0


async def clear(data_dir: Path, *, time: Time) -> None:
    """Wait until all children of an earlier supervisor of this directory have ended; kill them after a while.

    The kernel has signalled the children of a killed supervisor to end, but they may still run. They get
    `LEFTOVER_PATIENCE_S` seconds.
    """
    deadline = time.now() + LEFTOVER_PATIENCE_S
    while left := _find_alive(data_dir):
        if time.now() >= deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        await time.sleep(POLL_S)


def _find_alive(data_dir: Path) -> list[psutil.Process]:
    last = address.read_state(data_dir)
    found = []
    for child in last.children if last else ():
        # Process ids are reused, so an id does not prove that the process belongs to this stack.
        if child.pid is not None and child.born and read_birth(child.pid) == child.born:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(child.pid)
                if process.status() != psutil.STATUS_ZOMBIE:  # a zombie has ended, and waits for its new parent
                    found.append(process)
    return found
