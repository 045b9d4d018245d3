"""The supervisor: starts children one after the other, restarts those that crash, and stops all in reverse order.

It knows nothing about jobs: after a restart, the services read their state from PostgreSQL.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mathrag.client import stack_state
from mathrag.stack import disk_space, leftovers, lock
from mathrag.stack.birth import read_birth
from mathrag.stack.keeper import Child, Keeper
from mathrag.stack.process import REAL, Time
from shared.errors import MathragError

LOGS = "logs"
LOOK_S = 2.0
"""Seconds between two checks of the disk."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StartupTask:
    """A task that runs once, between two children."""

    name: str
    run: Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Chore:
    """A task that is repeated while the stack runs; a failure is logged, and the task runs again the next time."""

    name: str
    run: Callable[[], Awaitable[None]]
    every_s: float


class Supervisor:
    """Runs a table of children on one data directory."""

    def __init__(
        self,
        table: Sequence[Child | StartupTask | Chore],
        *,
        data_dir: Path,
        url: str,
        ready: Callable[[str, float], None],
        running: Callable[[], None],
        time: Time = REAL,
    ) -> None:
        """`ready` is called with each row's name and its seconds; `running` when all rows are done."""
        self.table = table
        self.data_dir = data_dir
        self.url = url
        self.keepers: list[Keeper] = []
        self._ready = ready
        self._running = running
        self._time = time
        self._phase: stack_state.Phase = "starting"
        self._state_is_written = True

    async def run(self) -> None:
        """Start everything and keep it running until cancelled; then stop everything."""
        with lock.hold(self.data_dir):
            await leftovers.clear(self.data_dir, time=self._time)
            self._enter("starting")
            kept = [asyncio.create_task(self._watch_disk())]
            try:
                await self._start(kept)
                await asyncio.gather(*kept)
            finally:
                await self._stop(kept)

    async def _start(self, kept: list[asyncio.Task[None]]) -> None:
        for row in self.table:
            started = self._time.now()
            if isinstance(row, Chore):
                kept.append(asyncio.create_task(self._repeat(row), name=row.name))
                continue
            if isinstance(row, StartupTask):
                await self._run_with_space(row.run)
            else:
                keeper = self._make_keeper(row)
                await self._run_with_space(keeper.start)
                kept.append(asyncio.create_task(keeper.keep(), name=row.name))
            self._ready(row.name, self._time.now() - started)
        self._enter("running")
        self._running()

    async def _repeat(self, chore: Chore) -> None:
        while True:
            try:
                await chore.run()
            except Exception as error:  # noqa: BLE001 - a failing chore must not end the children
                _log.warning("%s: %s", chore.name, error)
            await self._time.sleep(chore.every_s)

    async def _run_with_space(self, start: Callable[[], Awaitable[None]]) -> None:
        """Run `start`; if it fails while the disk is full, run it again when there is space."""
        while True:
            try:
                return await start()
            except (OSError, MathragError):
                if disk_space.check_space(self.data_dir) is None:
                    raise
            while disk_space.check_space(self.data_dir):
                await self._time.sleep(LOOK_S)

    async def _watch_disk(self) -> None:
        """Log when the disk becomes full and when it has space again, and write a state that could not be written."""
        full = False
        while True:
            warning = disk_space.check_space(self.data_dir)
            if full != (warning is not None):
                full = not full
                _log.warning(warning or f"the disk of `{self.data_dir}` has room again")
            if not self._state_is_written:
                self._write_state()
            await self._time.sleep(LOOK_S)

    def _make_keeper(self, child: Child) -> Keeper:
        log = self.data_dir / LOGS / f"{child.name}.log"
        keeper = Keeper(child, log=log, changed=self._write_state, time=self._time)
        self.keepers.append(keeper)
        return keeper

    async def _stop(self, kept: list[asyncio.Task[None]]) -> None:
        self._enter("stopping")
        for task in kept:
            task.cancel()
        await asyncio.gather(*kept, return_exceptions=True)
        for keeper in reversed(self.keepers):
            await keeper.stop()
        self._enter("stopped")

    def _enter(self, phase: stack_state.Phase) -> None:
        self._phase = phase
        self._write_state()

    def _write_state(self) -> None:
        children = tuple(_make_child_state(keeper) for keeper in self.keepers)
        now = stack_state.State(pid=os.getpid(), url=self.url, phase=self._phase, children=children)
        try:
            stack_state.write(self.data_dir, now)
            self._state_is_written = True
        except OSError as error:
            # The state is only for display, so a failed write must not end the stack; `_watch_disk` writes it later.
            if self._state_is_written:
                _log.warning("the state cannot be written, `mathrag status` shows an older one: %s", error)
            self._state_is_written = False


def _make_child_state(keeper: Keeper) -> stack_state.ChildState:
    return stack_state.ChildState(
        name=keeper.child.name,
        phase=keeper.phase,
        pid=keeper.pid,
        port=keeper.child.port,
        restarts=keeper.restarts,
        log=str(keeper.log),
        born=read_birth(keeper.pid) if keeper.pid else "",
    )
