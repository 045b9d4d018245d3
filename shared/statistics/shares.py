"""Count items by their values, which is all that a mean over items, its interval and its tests need.

The repeats of an item are one observation: the share of its correct answers (clustered by item). There are few distinct
shares, so the counts are small however many items there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from shared.statistics.intervals import Interval, wilson

Graded = Mapping[tuple[int, int], int]
"""Number of items by (correct answers, graded answers), without ungraded items. For a score the first
is the sum of the answers' values, in whole parts of a unit."""
Values = Mapping[Fraction, int]
"""Number of items by value, as exact fractions."""
Table = Mapping[tuple[Fraction, Fraction], int]
"""Number of items by their values in two systems."""


def count_values(graded: Graded, unit: int = 1) -> Values:
    """Count items by their share of correct answers, or by their mean score if `unit` is the value of 1."""
    found: Counter[Fraction] = Counter()
    for (right, answers), count in graded.items():
        found[Fraction(right, answers * unit)] += count
    return found


def count_items(strata: Iterable[Values] | Iterable[Table]) -> int:
    return sum(sum(stratum.values()) for stratum in strata)


def mean_over_items(strata: Sequence[Values]) -> float | None:
    """Compute the mean over all items with equal weights; None if there are no items."""
    count = count_items(strata)
    return float(sum(value * n for stratum in strata for value, n in stratum.items()) / count) if count else None


def estimate_share(values: Values) -> Interval:
    """Estimate the mean over items of their shares of correct answers, with Wilson's 95 % interval over items.

    Wilson's interval needs a whole number of right items. If an item's answers differ, it is that of the nearest whole
    number, which is half an item away at most; the interval of k of n reaches at least that far to both sides within
    [0, 1], so it always holds the mean. Without items the value is None, and the interval [0, 1].
    """
    count = count_items([values])
    right = sum(value * n for value, n in values.items())
    bounds = wilson(round(right), count)
    return Interval(value=mean_over_items([values]), low=bounds.low, high=bounds.high)


def subtract_sides(table: Table) -> Values:
    """Count items by left minus right."""
    found: Counter[Fraction] = Counter()
    for (left, right), count in table.items():
        found[left - right] += count
    return found


def take_side(table: Table, at: int) -> Values:
    """Count items by their left (0) or right (1) value."""
    found: Counter[Fraction] = Counter()
    for values, count in table.items():
        found[values[at]] += count
    return found


def merge_strata(strata: Iterable[Values]) -> Values:
    found: Counter[Fraction] = Counter()
    for stratum in strata:
        found.update(stratum)
    return found
