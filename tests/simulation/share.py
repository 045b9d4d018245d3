"""One process's share of a run: its seeds, and more of those whose fault points were hit too seldom."""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

from tests.simulation.coverage import ENOUGH, Coverage
from tests.simulation.plan import ORDER, Plan, plan
from tests.simulation.runner import Result, Runner, runner
from tests.simulation.shrinking import kind, shrink

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
    """What a share found."""

    schedules: int
    hits: Counter[str]
    schedules_of: Counter[str]
    found: list[Found]
    seconds: float


def play(share: Share) -> Played:
    """Play it; stops at the third violation."""
    began = time.monotonic()
    coverage, found = Coverage(), []
    hits: Counter[str] = Counter()
    schedules: Counter[str] = Counter()
    with runner() as simulation:
        for seed in _seeds(share, coverage):
            result = simulation.play(plan(seed))
            hits.update(result.hits)
            schedules.update(result.hits.keys())
            coverage.add(result.hits, Counter(result.hits.keys()), 1)
            if result.violations:
                found.append(shrunken(simulation, result))
            if len(found) == 3:
                break
    return Played(coverage.schedules, hits, schedules, found, time.monotonic() - began)


def _seeds(share: Share, coverage: Coverage) -> Iterator[int]:
    """Its own, then those that begin with a fault point which still lacks hits."""
    own = count(share.first + share.part, share.parts)
    yield from islice(own, share.schedules // share.parts)
    enough = -(-ENOUGH // share.parts)
    for seed in islice(own, round(share.schedules // share.parts * MORE * 20)):
        missing = coverage.missing(enough)
        if not missing or coverage.schedules > share.schedules // share.parts * (1 + MORE):
            return
        if ORDER[seed % len(ORDER)].name in missing:
            yield seed


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
