"""The smallest schedule that still breaks the promise: faults, jobs and samples are left out one by one."""

from collections.abc import Callable

from tests.simulation.plan import Plan, smaller

TRIES = 40
"""Schedules played for it, at most."""

Broken = Callable[[Plan], str | None]
"""Plays a plan; the kind of promise that it breaks, or None."""


def kind(violation: str) -> str:
    """What was violated, without times and ids: "audit I9", "memory"."""
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
