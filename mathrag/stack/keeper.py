"""One supervised child: started, watched, restarted after a crash with growing pauses, stopped."""

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

_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
HEALTHY_S = 30.0

Phase = Literal["starting", "ready", "backing-off", "stopped"]


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Child:
    """One row of the table of children."""

    name: str
    command: Callable[[], Sequence[str]]
    ready: Callable[[int], Awaitable[bool]]
    """Given the process id: whether it does its work now."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the supervisor's; addresses with passwords travel here, where no process list shows them."""
    prepare: Callable[[], None] = _nothing
    """Runs before every start."""
    port: int | None = None
    ready_s: float = 60.0
    stop_by: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0
    dies_by: signal.Signals = signal.SIGKILL
    """Sent by the kernel when the supervisor is gone."""


class BackOff:
    """How long to wait before the next restart: doubling, until the child has stayed healthy for a while."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE_S

    def after(self, healthy_s: float) -> float:
        """The pause after a child that was ready for so long."""
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

    @property
    def pid(self) -> int | None:
        """The running process."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start it and wait until it is ready; raise when it does not become so."""
        await self._clear_away()
        self._enter("starting")
        self.child.prepare()
        started = process.spawn(
            self.child.command(), log=self.log, environment=self.child.environment, dies_by=self.child.dies_by
        )
        self._process = started
        self._changed()
        ready = partial(self.child.ready, started.pid)
        await process.wait_ready(
            self.child.name, started, ready, log=self.log, timeout_s=self.child.ready_s, time=self._time
        )
        self._enter("ready")

    async def keep(self) -> None:
        """Restart it whenever it ends, until cancelled."""
        while True:
            ready_at = self._time.now()
            await self._ended()
            await self._restart(healthy_s=self._time.now() - ready_at)

    async def _ended(self) -> None:
        while self._process is not None and self._process.poll() is None:
            await self._time.sleep(process.POLL_S)

    async def _restart(self, healthy_s: float) -> None:
        while True:
            await self._clear_away()  # what a dead child left must not live through the pause
            self._enter("backing-off")
            await self._time.sleep(self._back_off.after(healthy_s))
            self.restarts += 1
            try:
                return await self.start()
            except Exception as error:  # noqa: BLE001 - one child's trouble must not end the others
                _log.warning("%s: %s", self.child.name, error)
                healthy_s = 0.0

    async def _clear_away(self) -> None:
        if self._process is not None:
            await process.stop(self._process, by=signal.SIGKILL, time=self._time)
            self._process = None  # its id, and that of its group, may belong to somebody else from now on

    async def stop(self) -> None:
        """End it: ask, wait, kill."""
        if self._process is not None:
            await process.stop(self._process, by=self.child.stop_by, grace_s=self.child.grace_s, time=self._time)
        self._enter("stopped")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._changed()
