"""The runtime, broken on purpose: the simulator must find each of these defects.

Each mutant replaces a piece of text in the real code, and fails if that text no longer exists.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text

from services.guard.guard import Guard
from services.guard.reconciler import Reconciler
from shared.lease import policy
from shared.runtime import advance, queue
from shared.runtime.queue import ReplyStore
from tests.simulation.plan import Plan, plan
from tests.simulation.runner import Found, runner

WITHIN = 1000
"""Schedules in which a mutant is found."""


class Mutation(NamedTuple):
    """A piece of text of `name` in `owner`, a statement or a function, and its replacement."""

    owner: Any
    name: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A defect, and the fault points that reveal it; none: all of them."""

    mutations: tuple[Mutation, ...]
    points: tuple[str, ...] = ()
    only: Callable[[Plan], bool] = lambda _plan: True
    """Selects the schedules that contain the broken part."""


class Hunt(NamedTuple):
    """How long it took to find one."""

    name: str
    schedules: int
    found: Found | None


class TextGone(AssertionError):
    """The code that a mutant changes has changed: also change the mutant."""


STALE = ("freeze-before-answer", "starve-renewals", "database-clock-leaps")
"""Claims lapse while those who hold them live."""
UNADVANCED = ("freeze-before-advance", "kill-at-tick", "ticks-dropped", "ticks-late", "redis-flushed")
"""Samples stay ready for a while."""
FLIPS = ("memory-lags", "server-survives-stop", "server-dies-in-call")

MUTANTS: Mapping[str, Mutant] = {
    "an answer without its token": Mutant(
        (
            Mutation(queue, "ACCEPT", "call_id = ANY(:calls) AND token = ANY(:tokens)", "call_id = ANY(:calls)"),
            Mutation(queue, "ACCEPT", "u.call_id = l.call_id AND u.token = l.token", "u.call_id = l.call_id"),
        ),
        STALE,
    ),
    "a chunk without its epoch": Mutant(
        (Mutation(Guard, "_admit", "if leased and (self.epoch is None or request.epoch != self.epoch):", "if False:"),)
    ),
    "a look before the commit": Mutant(
        (
            Mutation(
                ReplyStore,
                "_accept",
                "return await self._database.column(ACCEPT, values)",
                """from shared.runtime.queue import LOOK
        async with self._database.transaction() as connection:
            done = list((await connection.execute(ACCEPT, values)).scalars())
            await connection.execute(LOOK, {"calls": sorted(done)})
        return done""",
            ),
            Mutation(ReplyStore, "store", "(self._database, done + charged)", "(self._database, charged)"),
        ),
        only=lambda plan: plan.crowded,
    ),
    "inserts in any order": Mutant(
        (
            Mutation(
                advance, "record", "sorted(wanted.keys() - known.keys())]",
                "__import__('random').sample(sorted(wanted.keys() - known.keys()), len(wanted.keys() - known.keys()))]",
            ),
        ),
        only=lambda plan: plan.apart,
    ),
    "a drain that ignores ready samples": Mutant(
        (Mutation(policy, "_find_drain_cause", "if snapshot.ready or _has_work(", "if _has_work("),),
        UNADVANCED,
    ),
    "a flip without verification": Mutant(
        (
            Mutation(
                Reconciler, "_verify_free",
                "await self._verification.verify_free(needed if registered else None, self._reclaim)", "pass",
            ),
            Mutation(Reconciler, "_verify_free", "if alive := self._find_alive():", "if alive := []:"),
        ),
        FLIPS,
    ),
    "a sweeper that lapses nothing": Mutant((Mutation(queue, "EXPIRED", "claim_until < now()", "false"),)),
}  # fmt: skip


def hunt(name: str) -> Hunt:
    """Play the ordinary schedules, or those of the mutant's fault points, until one breaks a promise."""
    mutant = MUTANTS[name]
    with mutated(mutant.mutations), runner() as simulation:
        for played, schedule in enumerate(islice(_schedules(mutant), WITHIN), start=1):
            result = simulation.play(schedule)
            if result.violations:
                return Hunt(name, played, Found(result.plan, result.violations, result.events))
    return Hunt(name, WITHIN, None)


def _schedules(mutant: Mutant) -> Iterator[Plan]:
    plans = (plan(seed, mutant.points) for seed in count())
    return filter(mutant.only, plans)


@contextmanager
def mutated(mutations: tuple[Mutation, ...]) -> Iterator[None]:
    """The real code with other text in it."""
    before = [(each.owner, each.name, getattr(each.owner, each.name)) for each in mutations]
    try:
        for each in mutations:
            setattr(each.owner, each.name, _changed(each))
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


_SOURCES: dict[Any, str] = {}
"""Of functions that were made here: they have no file."""


def _changed(mutation: Mutation) -> Any:
    real = getattr(mutation.owner, mutation.name)
    statement = isinstance(real, TextClause)
    source = str(real) if statement else _SOURCES.get(real) or textwrap.dedent(inspect.getsource(real))
    if mutation.old not in source:
        raise TextGone(f"{mutation.name} does not say {mutation.old!r}")
    source = source.replace(mutation.old, mutation.new)
    return text(source) if statement else _function(real, source)


def _function(real: Any, source: str) -> Any:
    """Compiled where the real one was, so that it sees the same names."""
    names: dict[str, Any] = {}
    exec(source, sys.modules[real.__module__].__dict__, names)  # noqa: S102
    _SOURCES[names[real.__name__]] = source
    names[real.__name__].__module__ = real.__module__
    return names[real.__name__]
