"""Processes of the stack: start, keep and stop them, and find what is left over.

How long a start takes says nothing on a machine that is short of processors, so no limit here is one of the clock: they
count the time in which a process does nothing, and the processor time that it has used.
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
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill the child and all that it started, whatever their groups: stopped ones would not hear that it has ended."""
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
"""Longest time in which a child that was ready neither answers nor works."""
LOOPING_S = 60.0
"""Longest processor time that a child that was ready uses without answering."""

Phase = Literal["starting", "ready", "backing-off", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Child:
    """Describes a process that the supervisor keeps running: how to start it, and how to tell that it is ready."""

    name: str
    service: str = ""
    """Service that it runs; the workers of one service differ in their names only."""
    command: Callable[[], Sequence[str]]
    ready: Callable[[int], Awaitable[bool]]
    """Returns, for a process id, whether the child is ready to work."""
    answers: Callable[[int], Awaitable[bool]] | None = None
    """Returns, for the id of a process that was ready, whether it still answers; None: it is not asked."""
    beside: bool = False
    """Whether it starts together with the row before it in the table, not after it."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables added to the supervisor's; they carry addresses with passwords, which no process list shows."""
    prepare: Callable[[], None] | None = None
    """Called before every start."""
    port: int | None = None
    ready_s: float = IDLE_S
    """Longest time in which a child that starts does nothing."""
    stop_by: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0
    dies_by: signal.Signals = signal.SIGKILL
    """Signal that the kernel sends to the child when the supervisor dies."""


class BackOff:
    """Pauses before restarts, in seconds: each is twice the last, until the child was healthy for `HEALTHY_S`."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE_S

    def choose_pause(self, healthy_s: float) -> float:
        """Return the pause after a child that was ready for `healthy_s`."""
        if healthy_s >= HEALTHY_S:
            self._pause = FIRST_PAUSE_S
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_S)
        return pause


class Keeper:
    """Keeps one child alive; `changed` is called whenever its phase changes."""

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
        """Process id of the running child; None if none runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the child and wait until it is ready.

        Raises:
            Unavailable: it ended, or does not become ready.
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
        """Ask a child that was ready whether it still answers, and kill it if it hangs: `keep` then starts it again.

        It hangs if it does not answer and does nothing, or if it has used much processor time without answering.
        Neither is so if it does not come to answer because the machine has too much to do.
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
        effort.look()
        if effort.idle_s >= HUNG_S:
            self._kill_hung(asked, f"did nothing for {effort.idle_s:.0f} s")
        elif effort.used_s >= LOOPING_S:
            self._kill_hung(asked, f"used {effort.used_s:.0f} s of processor time")

    def _kill_hung(self, hung: "subprocess.Popen[bytes]", how: str) -> None:
        _log.warning("%s: process %d does not answer and %s; it is killed", self.child.name, hung.pid, how)
        kill_tree(hung)

    async def start_and_keep(self) -> None:
        """Start the child, also after a failed start, and keep it running until cancelled."""
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
            await self._kill_leftovers()  # the dead child's own children must not outlive it during the pause
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
            self._process = None  # from now on the system may reuse its process and group ids

    async def stop(self) -> None:
        """End the child: signal it, wait for `grace_s`, then kill it."""
        if self._process is not None:
            await stop(self._process, by=self.child.stop_by, grace_s=self.child.grace_s, time=self._time)
        self._enter("stopped")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._changed()


PATIENCE_S = 2.0
"""How long the test whether a service is ready waits for an answer."""
ANSWER_S = 5.0
"""How long a service may take to answer that was ready before: it may be at work."""
WRITTEN = "mathrag:supervisor:written"
"""Key in Redis whose writing shows that heartbeats can be written."""

Test = Callable[[int], Awaitable[bool]]
"""A test of the process with this id: a service is reached on its port, a worker has a heartbeat in Redis instead."""


def make_http_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that succeeds when GET /healthz answers 200."""

    async def is_ready(_pid: int) -> bool:
        try:
            return await _get_health(host, port, PATIENCE_S) == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    return is_ready


def make_http_answer_test(port: int, host: str = "127.0.0.1") -> Test:
    """Return a test that fails when GET /healthz finds nobody who listens, or is not answered in time."""

    async def answers(_pid: int) -> bool:
        try:
            await _get_health(host, port, ANSWER_S)
        except (httpx2.TimeoutException, httpx2.ConnectError):
            return False
        except httpx2.HTTPError:
            return True  # a service with too many connections closes further ones at once
        return True

    return answers


async def _get_health(host: str, port: int, patience_s: float) -> int:
    # trust_env=False: requests to this machine must not go through a proxy of the environment.
    # verify=False: loading certificates, of which http:// needs none, takes 70 ms of the processor.
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
    """Return a test that fails when a Redis that takes heartbeats has none of the worker, or its child is stopped.

    The main process, whose heartbeat it is, lives on while the child that works is stopped. A child that works and does
    not end is Celery's to kill, which limits the time of a tick.
    """

    async def answers(pid: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            if any(child.status() == psutil.STATUS_STOPPED for child in psutil.Process(pid).children()):
                return False
        async with Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
            try:
                if await client.exists(heartbeats.key(lane, pid)):
                    return True
                await client.set(WRITTEN, "", ex=heartbeats.TTL_S)  # a full Redis refuses heartbeats, too
            except RedisError:
                return True
            return False

    return answers


BOOT = Path("/proc/sys/kernel/random/boot_id")
"""File with an id that changes at every boot of the machine."""
START = 19
"""Index of the start time among the fields of /proc/PID/stat after the name: proc(5), field 22."""


def read_birth(pid: int) -> str:
    """Return boot id and start in clock ticks since boot, which tell a process from a later one with the same id.

    The clock cannot be set. The text is "" if there is no such process.
    """
    try:
        if not BOOT.exists():
            return str(psutil.Process(pid).create_time())
        # The name stands in brackets and may hold any character, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return ""
    return f"{BOOT.read_text().strip()} {fields[START]}"


LEFTOVER_PATIENCE_S = 10.0


async def clear(data_dir: Path, *, time: Time) -> None:
    """Wait until no child of an earlier supervisor of this directory is left; kill them after `LEFTOVER_PATIENCE_S`.

    The kernel has signalled the children of a killed supervisor to end, but they may still run.
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
        # Process ids are reused, so the id alone does not prove that the process is ours.
        if child.pid is not None and child.born and read_birth(child.pid) == child.born:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(child.pid)
                if process.status() != psutil.STATUS_ZOMBIE:  # it has ended, and waits to be reaped by its new parent
                    found.append(process)
    return found
