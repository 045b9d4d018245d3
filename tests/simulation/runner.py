"""Plays schedules one after another on one database, and reports their findings."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from anyio import to_thread

from tests.simulation import actor, checks, clock, pipelines, processes
from tests.simulation.plan import Plan, plan, smaller
from tests.simulation.points import ENOUGH, Coverage, ids_of
from tests.simulation.store import Store, cluster
from tests.simulation.world import World

T = TypeVar("T")

FRESH = 100
"""Schedules on one set of rows; then it is emptied, because queries over all jobs also read earlier ones."""
APART_S = 86_400.0
"""Between two schedules: none sees that there was another one before it."""


class Result(NamedTuple):
    """The result of a schedule."""

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
        """Play one schedule, on empty tables if it must repeat exactly."""
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
    """Yield a runner with a separate database, which is removed afterwards."""
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
    """Outside a schedule, every wait is for the database."""

    def under_way(self) -> bool:
        return True

    def expects(self, _file: int) -> bool:
        return True

    def stalled(self) -> bool:
        return False


# The smallest schedule that still breaks the promise: faults, jobs and samples are left out one by one.

TRIES = 40
"""Schedules played for it, at most."""

Broken = Callable[[Plan], str | None]
"""Plays a plan; the kind of promise that it breaks, or None."""


def kind(violation: str) -> str:
    """Name the violation without times and ids: "audit I9", "memory"."""
    _, _, what = violation.partition(" ")
    return what.partition(":")[0]


def shrink(whole: Plan, wanted: str, broken: Broken, tries: int = TRIES) -> Plan:
    """A plan from which nothing can be left out, or the best within `tries`."""
    smallest, left = whole, iter(range(tries))
    found = True
    while found:
        found = False
        for candidate in smaller(smallest):
            if next(left, None) is None:
                return smallest
            if broken(candidate) == wanted:
                smallest, found = candidate, True
                break
    return smallest


# The share of one process in a run: its seeds, and more of those whose fault points were hit too seldom.

MORE = 1.0
"""So many more schedules than asked for may be played for the coverage's sake, as a share."""


class Share(NamedTuple):
    """Which part of a run, of how many."""

    first: int
    schedules: int
    part: int
    parts: int


class Found(NamedTuple):
    """A schedule that broke a promise, shrunken."""

    plan: Plan
    violations: list[str]
    events: list[str]


class Played(NamedTuple):
    """The findings of a share."""

    schedules: int
    hits: Counter[str]
    schedules_of: Counter[str]
    """By fault point, and by id of the catalogue."""
    found: list[Found]
    seconds: float


def play(share: Share) -> Played:
    """Play it; stops at the third violation."""
    began = time.monotonic()
    coverage, found = Coverage(), []
    hits: Counter[str] = Counter()
    schedules: Counter[str] = Counter()
    with runner() as simulation:
        for schedule in plan_share(share, coverage):
            result = simulation.play(schedule)
            hits.update(result.hits)
            schedules.update(result.hits.keys() | ids_of(result.hits))
            coverage.add(result.hits, Counter(result.hits.keys()), 1)
            if result.violations:
                found.append(shrunken(simulation, result))
            if len(found) == 3:
                break
    return Played(coverage.schedules, hits, schedules, found, time.monotonic() - began)


def plan_share(share: Share, coverage: Coverage) -> Iterator[Plan]:
    """Its own, then others of nothing but the fault points which still lack hits."""
    own = count(share.first + share.part, share.parts)
    asked = share.schedules // share.parts
    yield from map(plan, islice(own, asked))
    for seed in islice(own, round(asked * MORE)):
        missing = coverage.missing(ENOUGH * asked)
        if not missing:
            return
        yield plan(seed, tuple(missing))


def shrunken(simulation: Runner, result: Result) -> Found:
    """The smallest plan with the same violation; the plan itself if it does not come again."""

    def broken(candidate: Plan) -> str | None:
        again = simulation.play(candidate, fresh=True)
        return kind(again.violations[0]) if again.violations else None

    smallest = shrink(result.plan, kind(result.violations[0]), broken)
    last = simulation.play(smallest, fresh=True)
    if not last.violations:
        return Found(result.plan, result.violations, result.events)
    return Found(smallest, last.violations, last.events)
