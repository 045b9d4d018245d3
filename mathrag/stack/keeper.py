"""Keep one child process running: start it, restart it with back-off when it crashes or hangs, and stop it."""

import logging
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from mathrag.stack import process
from mathrag.stack.process import Time
from shared.errors import MathragError

_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
HEALTHY_S = 30.0
HUNG_S = 30.0
"""Longest time in which a child that was ready neither answers nor works."""
LOOPING_S = 60.0
"""Longest processor time that a child that was ready uses without answering."""

Phase = Literal["starting", "ready", "backing-off", "stopped"]


def _do_nothing() -> None:
    pass


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
    prepare: Callable[[], None] = _do_nothing
    """Called before every start."""
    port: int | None = None
    ready_s: float = process.IDLE_S
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
        self._unanswered: process.Effort | None = None

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
        self.child.prepare()
        started = process.spawn(
            self.child.command(), log=self.log, environment=self.child.environment, dies_by=self.child.dies_by
        )
        self._process = started
        began = self._time.now()
        _log.info("%s: starts as process %d", self.child.name, started.pid)
        self._changed()
        ready = partial(self.child.ready, started.pid)
        await process.wait_ready(
            self.child.name, started, ready, log=self.log, timeout_s=self.child.ready_s, time=self._time
        )
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
        effort = self._unanswered = self._unanswered or process.Effort(asked.pid, self._time)
        effort.look()
        if effort.idle_s >= HUNG_S:
            self._kill_hung(asked, f"did nothing for {effort.idle_s:.0f} s")
        elif effort.used_s >= LOOPING_S:
            self._kill_hung(asked, f"used {effort.used_s:.0f} s of processor time")

    def _kill_hung(self, hung: "subprocess.Popen[bytes]", how: str) -> None:
        _log.warning("%s: process %d does not answer and %s; it is killed", self.child.name, hung.pid, how)
        process.kill_tree(hung)

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
            await self._wait_until_ended()
            if self._process is not None:
                _log.warning("%s: ended with status %s", self.child.name, self._process.returncode)
            await self._restart(healthy_s=self._time.now() - ready_at)

    async def _wait_until_ended(self) -> None:
        while self._process is not None and self._process.poll() is None:
            await self._time.sleep(process.POLL_S)

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
            await process.stop(self._process, by=signal.SIGKILL, time=self._time)
            self._process = None  # from now on the system may reuse its process and group ids

    async def stop(self) -> None:
        """End the child: signal it, wait for `grace_s`, then kill it."""
        if self._process is not None:
            await process.stop(self._process, by=self.child.stop_by, grace_s=self.child.grace_s, time=self._time)
        self._enter("stopped")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._changed()
