"""Plays schedules one after another on one database, and says what they found."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from anyio import to_thread

from tests.simulation import actor, checks, clock, pipelines, processes
from tests.simulation.plan import Plan
from tests.simulation.store import Store, cluster
from tests.simulation.world import World

T = TypeVar("T")

FRESH = 100
"""Schedules on one set of rows; then it is emptied, for who looks at all jobs looks at those of before, too."""
APART_S = 86_400.0
"""Between two schedules: none sees that there was another one before it."""


class Result(NamedTuple):
    """What became of a schedule."""

    plan: Plan
    violations: list[str]
    events: list[str]
    hits: Counter[str]
    trace: str
    """Hash over everything that happened, and when."""
    waits: int
    """Operations that waited for a lock."""


class Runner:
    """One database, one loop."""

    def __init__(self, store: Store, loop: clock.VirtualLoop, wall: clock.WallClock) -> None:
        self.store = store
        self.loop = loop
        self._wall = wall
        self._played = FRESH

    def play(self, plan: Plan, *, fresh: bool = False) -> Result:
        """One schedule, on empty tables if it must be exactly as it was before."""
        if fresh or self._played >= FRESH:
            self.store.empty()
            self._played = 0
        self._played += 1
        self.store.base_s += APART_S
        self._wall.offset_s = self.store.base_s
        self.loop.restart()
        random.seed(plan.seed)
        waits = self.store.turnstile.waits
        world = World(plan, self.loop, self.store, self._wall)
        self.loop.run_until_complete(self._play(world))
        if world.violations:
            self._played = FRESH
        return Result(
            plan,
            world.violations,
            world.events,
            world.hits,
            world.trace.hexdigest(),
            self.store.turnstile.waits - waits,
        )

    async def _play(self, world: World) -> None:
        world.set_clocks()
        await world.play()
        world.set_clocks()
        await checks.after(world)


async def _at_once(do: Callable[..., T], *args: Any) -> T:
    """In this thread: virtual time must not pass while a real thread computes."""
    return do(*args)


@contextmanager
def runner() -> Iterator[Runner]:
    """With a database of its own, gone afterwards."""
    logging.disable(logging.CRITICAL)
    pipelines.install()
    loop = clock.VirtualLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.born = actor.keep_count
    wall = clock.WallClock(loop)
    with TemporaryDirectory() as folder, cluster(Path(folder)) as server:
        store = Store(server)
        loop.operations = _Always()
        loop.run_until_complete(store.open())
        loop.operations = store.turnstile
        undo_clock, undo_ports = clock.install(wall), processes.install()
        asyncio.set_event_loop(loop)
        try:
            with patch.object(to_thread, "run_sync", _at_once):
                yield Runner(store, loop, wall)
        finally:
            undo_ports()
            undo_clock()
            loop.operations = _Always()
            loop.run_until_complete(store.close())
            loop.close()


class _Always:
    """Outside a schedule whatever is waited for is the database."""

    def under_way(self) -> bool:
        return True

    def expects(self, _file: int) -> bool:
        return True

    def stalled(self) -> bool:
        return False
