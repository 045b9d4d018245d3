"""One process's share of a run: its seeds, and more of those whose fault points were hit too seldom."""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

from tests.simulation.catalogued import catalogued
from tests.simulation.coverage import ENOUGH, Coverage
from tests.simulation.plan import Plan, plan
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
        for schedule in _schedules(share, coverage):
            result = simulation.play(schedule)
            hits.update(result.hits)
            schedules.update(result.hits.keys() | catalogued(result.hits))
            coverage.add(result.hits, Counter(result.hits.keys()), 1)
            if result.violations:
                found.append(shrunken(simulation, result))
            if len(found) == 3:
                break
    return Played(coverage.schedules, hits, schedules, found, time.monotonic() - began)


def _schedules(share: Share, coverage: Coverage) -> Iterator[Plan]:
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
