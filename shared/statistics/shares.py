"""Items by what they are worth: all that a mean over items, its interval and its tests need to know.

The repeats of an item are one observation, the share of them that is right (clustered by item). Few shares are
possible, so counting the items of each takes no memory to speak of, however many there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

Graded = Mapping[tuple[int, int], int]
"""Number of items by (right answers, graded answers); those without a graded answer are in none. Of a score the first
is the sum of the answers' values, in whole parts of a unit."""
Values = Mapping[Fraction, int]
"""Number of items by value: exact, so that equal shares are equal."""
Table = Mapping[tuple[Fraction, Fraction], int]
"""Number of items by their values on two sides."""


def values(graded: Graded, unit: int = 1) -> Values:
    """The items by the share of their answers that is right; of a score, by their mean value, of which `unit` are 1."""
    found: Counter[Fraction] = Counter()
    for (right, answers), count in graded.items():
        found[Fraction(right, answers * unit)] += count
    return found


def items(strata: Iterable[Values] | Iterable[Table]) -> int:
    """How many there are."""
    return sum(sum(stratum.values()) for stratum in strata)


def mean(strata: Sequence[Values]) -> float | None:
    """Over all items, each as much as any other; None where there is none."""
    count = items(strata)
    return float(sum(value * n for stratum in strata for value, n in stratum.items()) / count) if count else None


def differences(table: Table) -> Values:
    """Left minus right."""
    found: Counter[Fraction] = Counter()
    for (left, right), count in table.items():
        found[left - right] += count
    return found


def side(table: Table, at: int) -> Values:
    """The left (0) or the right (1) values alone."""
    found: Counter[Fraction] = Counter()
    for values, count in table.items():
        found[values[at]] += count
    return found


def merged(strata: Iterable[Values]) -> Values:
    """All items in one."""
    found: Counter[Fraction] = Counter()
    for stratum in strata:
        found.update(stratum)
    return found
