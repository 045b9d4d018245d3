"""How often rules held and were followed, by how recently and at how many steps their bodies held."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.simple.history import Numbers, spread


class Tally(NamedTuple):
    """Examples that look alike, one row for all; sorted by rule, distance and `often`."""

    rule: Numbers
    """The rule's number, as whoever counts numbers them."""
    distance: Numbers
    """Steps since the body last held; from 1."""
    often: Numbers
    """At how many steps of the window the body held; from 1."""
    held: Numbers
    """Examples."""
    followed: Numbers
    """How many of them the head follows."""

    def only(self, rules: Numbers) -> "Tally":
        """The rows of `rules`, ascending, numbered by their places there."""
        kept = np.isin(self.rule, rules)
        return Tally(np.searchsorted(rules, self.rule[kept]), *(part[kept] for part in self[1:]))

    def part(self, rules: slice) -> "Tally":
        """The rows of neighbouring rules, numbered from 0."""
        rows = slice(*np.searchsorted(self.rule, [rules.start, rules.stop]))
        return Tally(self.rule[rows] - rules.start, *(part[rows] for part in self[1:]))


class Counter:
    """Collects examples in portions and keeps their numbers alone."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._codes, self._held, self._followed = (np.empty(0, np.int64) for _ in range(3))

    def add(self, rule: Numbers, distance: Numbers, often: Numbers, followed: NDArray[np.bool_]) -> None:
        """Counts examples; `distance` and `often` are at most the window."""
        codes = (rule * (self.window + 1) + distance) * (self.window + 1) + often
        merged, place = np.unique(np.concatenate([self._codes, codes]), return_inverse=True)
        self._held = _sums(place, np.concatenate([self._held, np.ones_like(codes)]))
        self._followed = _sums(place, np.concatenate([self._followed, followed]))
        self._codes = merged

    def tally(self) -> Tally:
        """What was counted."""
        rest, often = np.divmod(self._codes, self.window + 1)
        return Tally(*np.divmod(rest, self.window + 1), often, self._held, self._followed)


def joined(held: Tally, group: Numbers, followed: Tally) -> Tally:
    """The examples of each rule: where its `group` (rules,) held, and of them those in which the rule was followed."""
    rule, row = spread(np.searchsorted(held.rule, group), np.searchsorted(held.rule, group, side="right"))
    distance, often = held.distance[row], held.often[row]
    base, wide = int(distance.max(initial=0)) + 1, int(often.max(initial=0)) + 1
    right = np.zeros_like(rule)
    codes = (followed.rule * base + followed.distance) * wide + followed.often
    right[np.searchsorted((rule * base + distance) * wide + often, codes)] = followed.followed
    return Tally(rule, distance, often, held.held[row], right)


def stacked(tallies: Sequence[Tally], sizes: Sequence[int]) -> Tally:
    """Tallies of so many rules each as one, numbered through."""
    before = np.cumsum([0, *sizes])
    moved = [tally._replace(rule=tally.rule + first) for tally, first in zip(tallies, before, strict=False)]
    return Tally(*(np.concatenate(parts) for parts in zip(*moved, strict=True)))


def _sums(place: Numbers, values: Numbers) -> Numbers:
    return np.bincount(place, values).astype(np.int64)
