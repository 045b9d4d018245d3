"""Whether two systems differ on the same items, by how much, and in words.

One verdict an item: McNemar's exact test. Several: the share of an item's repeats that is right is one observation, and
the test is the paired randomisation test of the mean difference (Fisher 1935), of which McNemar's exact one is the case
of a single verdict. A majority vote over repeats would answer another question: of a system that is right on every item
nine times in ten, and one that is always right on nine items of ten, it finds the first one better.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import msgspec

from shared.statistics import randomisation, shares
from shared.statistics.bootstrap import RESAMPLES, SEED, bootstrap
from shared.statistics.intervals import Interval
from shared.statistics.power import needed
from shared.statistics.shares import Table, Values
from shared.statistics.significance import LEVEL, Tested

MOST_CORRECTED = RESAMPLES // 200
"""Comparisons for which the resamples reach far enough: five of them lie outside on either side."""


class Pair(Tested, frozen=True, kw_only=True):
    """One system (left) against another (right), over the items that both have a value for.

    `p` is two-sided: McNemar's exact test, with repeats or a score the paired randomisation test.
    """

    items: int
    gained: int
    """Items that the left one has right more often, or with a higher score."""
    lost: int
    """Items that the right one has right more often, or with a higher score."""
    difference: Interval | None
    """Of the means over these items, left minus right, with its 95 % bootstrap interval over items, drawn within
    datasets and not corrected for other comparisons; None: there is no such item."""
    corrected: Interval | None
    """The same with Bonferroni's correction (Dunn 1961): of m comparisons made together each has an interval of
    1 - 0.05 / m, so that all of them hold at once in 95 % of cases. Holm's test is the sharper one: a difference may be
    separable and its corrected interval still reach 0. None: no item, or more than `MOST_CORRECTED` comparisons."""
    effect: float | None
    """Cohen's h (1988, section 6.2): 0.2 is small, 0.5 medium, 0.8 large. Of a score his d of the differences, mean /
    standard deviation; None where they are all equal."""
    needed: int | None
    """Items at which a difference like this one would be found with a probability of 80 %; None: there is none."""


AnyPair = TypeVar("AnyPair", bound=Pair)


def compared(strata: Sequence[Table], *, degrees: bool = False, tests: int = 1) -> Pair:
    """The pair, pooled over strata (such as datasets): items of each are compared and drawn among themselves.

    Args:
        degrees: the values are a score's, and not shares of answers that are right or wrong.
        tests: comparisons that are made together, this one among them. p is corrected by `significance.together`.
    """
    apart = [shares.differences(table) for table in strata]
    together = shares.merged(apart)
    p = p_value(together)
    return Pair(
        items=shares.items(strata),
        gained=sum(count for value, count in together.items() if value > 0),
        lost=sum(count for value, count in together.items() if value < 0),
        difference=bootstrap(apart),
        corrected=bootstrap(apart, 1 - LEVEL / tests) if tests <= MOST_CORRECTED else None,
        effect=standardised(together) if degrees else _of_shares(strata),
        needed=needed(together),
        p=p,
        adjusted=p,
        separable=p < LEVEL,
    )


def _of_shares(strata: Sequence[Table]) -> float | None:
    return effect(*(shares.mean([shares.side(table, at) for table in strata]) for at in (0, 1)))


def standardised(differences: Values) -> float | None:
    """Cohen's d of paired differences (1988, section 2.3.5): mean / standard deviation (ddof 1); None without one."""
    n = sum(differences.values())
    mean = sum(value * count for value, count in differences.items()) / n if n else Fraction()
    squares = sum((value - mean) ** 2 * count for value, count in differences.items())
    return float(mean) / math.sqrt(squares / (n - 1)) if squares else None


def effect(left: float | None, right: float | None) -> float | None:
    """Cohen's h of two shares."""
    if left is None or right is None:
        return None
    return 2 * (math.asin(math.sqrt(left)) - math.asin(math.sqrt(right)))


def p_value(differences: Values) -> float:
    """Two-sided p of a mean difference of 0: as if every item's sign had been a coin's; 1 where no item differs.

    Exact for one verdict an item and for few items that differ; else estimated from `RESAMPLES` draws.
    """
    sizes: Counter[int] = Counter()
    unit = math.lcm(*(value.denominator for value in differences))
    for value, count in differences.items():
        if value and count:
            sizes[int(abs(value) * unit)] += count
    total = int(sum(value * count for value, count in differences.items()) * unit)
    p = randomisation.exact(sizes, total)
    return _drawn(sizes, abs(total)) if p is None else p


def _drawn(sizes: Counter[int], total: int) -> float:
    """Share of random signs, the observed ones among them, whose sum is at least as far from 0 as `total`.

    It is 1 / (1 + RESAMPLES) at least.
    """
    import numpy as np

    rng = np.random.default_rng(SEED)
    sums = np.zeros(RESAMPLES, dtype=np.int64)
    for size, count in sorted(sizes.items()):
        sums += size * (2 * rng.binomial(count, 0.5, RESAMPLES) - count)
    return float((1 + np.count_nonzero(np.abs(sums) >= total)) / (1 + RESAMPLES))


def reversed_pair(pair: AnyPair) -> AnyPair:
    """The right system against the left one."""
    return msgspec.structs.replace(
        pair,
        gained=pair.lost,
        lost=pair.gained,
        difference=_negative(pair.difference),
        corrected=_negative(pair.corrected),
        effect=None if pair.effect is None else -pair.effect,
    )


def _negative(found: Interval | None) -> Interval | None:
    if found is None or found.value is None:
        return found
    return Interval(value=-found.value, low=-found.high, high=-found.low)


def words(pair: Pair) -> str:
    """The comparison as a reader may quote it: no ranking where the test shows none."""
    if pair.difference is None or pair.difference.value is None:
        return "nothing to compare: there is no item that both have a value for"
    if not pair.gained + pair.lost:
        return f"not separable: no difference on any of {pair.items} items"
    if pair.separable:
        return f"{'better' if pair.difference.value > 0 else 'worse'}: {_figures(pair, pair.difference)}"
    hint = f"; a difference like this needs about {pair.needed:,} items" if pair.needed else ""
    return f"not separable at n = {pair.items}: {_figures(pair, pair.difference)}{hint}"


def _figures(pair: Pair, difference: Interval) -> str:
    value, low, high = (f"{100 * (bound or 0):+.1f}" for bound in (difference.value, difference.low, difference.high))
    p = "p < 0.001" if pair.adjusted < 0.001 else f"p = {pair.adjusted:.3f}"
    return f"{value} points ({low} to {high}), +{pair.gained} -{pair.lost} of {pair.items}, {p}"
