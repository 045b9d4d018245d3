"""The supervisor: starts the children in order, restarts those that crash or hang, and stops all in reverse order.

While they run, it starts and stops workers until as many run as `mathrag scale` has asked for. It knows nothing about
jobs: after a restart, the services read their state from PostgreSQL.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mathrag.client import stack_state
from mathrag.stack import disk_space, leftovers, lock, scale
from mathrag.stack.birth import read_birth
from mathrag.stack.keeper import Child, Keeper
from mathrag.stack.process import REAL, Time
from shared.errors import MathragError

LOGS = "logs"
LOOK_S = 2.0
"""Seconds between two checks of the disk."""
CHECK_S = 5.0
"""Seconds between two questions to the children whether they still answer."""
SCALE_S = 0.5
"""Seconds between two looks at the number of workers that is asked for."""

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
        workers: Mapping[str, Callable[[int], Child]] | None = None,
        time: Time = REAL,
    ) -> None:
        """`ready` is called with each row's name and its seconds; `running` when all rows are done.

        `workers` has by service a function that makes its worker with a number, from 1; the table has the first ones.
        """
        self.table = table
        self.data_dir = data_dir
        self.url = url
        self.keepers: list[Keeper] = []
        self._ready = ready
        self._running = running
        self._workers = workers or {}
        self._wanted: dict[str, int] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        """The task that keeps each child running, by the child's name."""
        self._time = time
        self._phase: stack_state.Phase = "starting"
        self._state_is_written = True

    async def run(self) -> None:
        """Start everything and keep it running until cancelled; then stop everything."""
        with lock.hold(self.data_dir):
            await leftovers.clear(self.data_dir, time=self._time)
            scale.forget(self.data_dir)
            self._enter("starting")
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._watch_disk())
                    tasks.create_task(self._watch_answers())
                    await self._start(tasks)
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            finally:
                await self._stop()

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        """Start each row when those before it are ready, or together with the one before it."""
        starting: list[asyncio.Task[None]] = []
        for row in self.table:
            if isinstance(row, Chore):
                tasks.create_task(self._repeat(row), name=row.name)
                continue
            if not (isinstance(row, Child) and row.beside):
                await asyncio.gather(*starting)
                starting.clear()
            starting.append(tasks.create_task(self._start_row(row, tasks), name=row.name))
        await asyncio.gather(*starting)
        for service in self._workers:
            chore = Chore(name=f"workers of {service}", run=partial(self._scale, service, tasks), every_s=SCALE_S)
            tasks.create_task(self._repeat(chore), name=chore.name)
        self._enter("running")
        self._running()

    async def _start_row(self, row: Child | StartupTask, tasks: asyncio.TaskGroup) -> None:
        started = self._time.now()
        if isinstance(row, StartupTask):
            await self._run_with_space(row.run)
        else:
            keeper = self._make_keeper(row, len(self.keepers))
            await self._run_with_space(keeper.start)
            self._keeping[row.name] = tasks.create_task(keeper.keep(), name=row.name)
        self._ready(row.name, self._time.now() - started)

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

    async def _watch_answers(self) -> None:
        """Have every child asked whether it still answers, again and again."""
        while True:
            await self._time.sleep(CHECK_S)
            checks = await asyncio.gather(*(keeper.check() for keeper in self.keepers), return_exceptions=True)
            for error in checks:
                if isinstance(error, Exception):
                    _log.warning("a child could not be asked: %s", error)

    async def _scale(self, service: str, tasks: asyncio.TaskGroup) -> None:
        """Start or stop a worker, one after another, until as many run as are asked for by then."""
        while wanted := scale.read(self.data_dir, service):
            if self._wanted.get(service) != wanted:
                _log.info("%s: the number of workers asked for is %d", service, wanted)
                self._wanted[service] = wanted
                self._write_state()
            running = [keeper for keeper in self.keepers if keeper.child.service == service]
            if len(running) == wanted:
                return
            if len(running) > wanted:
                await self._remove(running[-1])
            else:
                child = self._workers[service](len(running) + 1)
                position = self.keepers.index(running[-1]) + 1 if running else len(self.keepers)
                keeper = self._make_keeper(child, position)
                self._keeping[child.name] = tasks.create_task(keeper.start_and_keep(), name=child.name)

    async def _remove(self, keeper: Keeper) -> None:
        """Stop one child in the usual way; it is in the state, and is stopped with the stack, until it has ended."""
        keeping = self._keeping[keeper.child.name]
        keeping.cancel()
        await asyncio.wait([keeping])
        await keeper.stop()
        self.keepers.remove(keeper)
        self._write_state()
        _log.info("%s: stopped", keeper.child.name)

    def _make_keeper(self, child: Child, position: int) -> Keeper:
        log = self.data_dir / LOGS / f"{child.name}.log"
        keeper = Keeper(child, log=log, changed=self._write_state, time=self._time)
        self.keepers.insert(position, keeper)
        return keeper

    async def _stop(self) -> None:
        self._enter("stopping")
        for keeper in reversed(self.keepers):
            await keeper.stop()
        self._enter("stopped")

    def _enter(self, phase: stack_state.Phase) -> None:
        self._phase = phase
        _log.info("the stack on %s is %s", self.data_dir, phase)
        self._write_state()

    def _write_state(self) -> None:
        children = tuple(_make_child_state(keeper) for keeper in self.keepers)
        now = stack_state.State(
            pid=os.getpid(), url=self.url, phase=self._phase, children=children, wanted=self._wanted
        )
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
        service=keeper.child.service,
        phase=keeper.phase,
        pid=keeper.pid,
        port=keeper.child.port,
        restarts=keeper.restarts,
        log=str(keeper.log),
        born=read_birth(keeper.pid) if keeper.pid else "",
    )
