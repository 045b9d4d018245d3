"""How often each fault point was hit, and whether that is often enough."""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.points import POINTS

ENOUGH = 0.1
"""Hits of each fault point, per schedule that was asked for."""


class Coverage:
    """Of one run."""

    def __init__(self) -> None:
        self.schedules = 0
        self._hits: Counter[str] = Counter()
        self.schedules_of: Counter[str] = Counter()

    def add(self, hits: Counter[str], schedules: Counter[str], played: int) -> None:
        """What another part of the run saw."""
        self._hits.update(hits)
        self.schedules_of.update(schedules)
        self.schedules += played

    def missing(self, enough: float) -> list[str]:
        """Points that were hit too seldom."""
        return [name for name in POINTS if self._hits[name] < enough]

    def table(self) -> Iterator[str]:
        """A line a point: the seldom ones first."""
        width = max(map(len, POINTS))
        yield f"{'fault point':<{width}}  hits  schedules"
        for name in sorted(POINTS, key=lambda name: (self._hits[name], name)):
            yield f"{name:<{width}}  {self._hits[name]:>4}  {self.schedules_of[name]:>9}"
