"""Compare two systems on the same items: whether they differ, by how much, and in words.

With one verdict for each item, the test is McNemar's exact test. With several, the share of an item's correct repeats
is one observation, and the test is the paired randomisation test of the mean difference (Fisher 1935), which for single
verdicts equals McNemar's exact test. A majority vote over repeats would answer another question: it would prefer a
system that is right on every item nine times in ten to one that is always right on nine items of ten.
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
from shared.statistics.power import estimate_needed_items
from shared.statistics.shares import Table, Values
from shared.statistics.significance import LEVEL, TestResult

MAX_CORRECTED = RESAMPLES // 200
"""The most comparisons that `RESAMPLES` can correct for: five resamples lie beyond each bound."""


class PairComparison(TestResult, frozen=True, kw_only=True):
    """The comparison of one system (left) with another (right), over the items that both have a value for.

    `p` is two-sided, from McNemar's exact test, or from the paired randomisation test for repeats or a score.
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


AnyComparison = TypeVar("AnyComparison", bound=PairComparison)


def compare_pair(strata: Sequence[Table], *, degrees: bool = False, tests: int = 1) -> PairComparison:
    """Compare the pair, pooled over strata (such as datasets): items are compared and drawn within their stratum.

    Args:
        degrees: whether the values are scores instead of shares of correct answers.
        tests: the number of comparisons made together, including this one. p is corrected by `correct_family`.
    """
    apart = [shares.subtract_sides(table) for table in strata]
    together = shares.merge_strata(apart)
    p = compute_p(together)
    return PairComparison(
        items=shares.count_items(strata),
        gained=sum(count for value, count in together.items() if value > 0),
        lost=sum(count for value, count in together.items() if value < 0),
        difference=bootstrap(apart),
        corrected=bootstrap(apart, 1 - LEVEL / tests) if tests <= MAX_CORRECTED else None,
        effect=cohens_d(together) if degrees else _effect_of_shares(strata),
        needed=estimate_needed_items(together),
        p=p,
        adjusted=p,
        separable=p < LEVEL,
    )


def _effect_of_shares(strata: Sequence[Table]) -> float | None:
    return cohens_h(*(shares.mean_over_items([shares.take_side(table, at) for table in strata]) for at in (0, 1)))


def cohens_d(differences: Values) -> float | None:
    """Compute Cohen's d of paired differences (1988, section 2.3.5): mean / standard deviation (ddof 1), or None."""
    n = sum(differences.values())
    mean = sum(value * count for value, count in differences.items()) / n if n else Fraction()
    squares = sum((value - mean) ** 2 * count for value, count in differences.items())
    return float(mean) / math.sqrt(squares / (n - 1)) if squares else None


def cohens_h(left: float | None, right: float | None) -> float | None:
    """Compute Cohen's h of two shares."""
    if left is None or right is None:
        return None
    return 2 * (math.asin(math.sqrt(left)) - math.asin(math.sqrt(right)))


def compute_p(differences: Values) -> float:
    """Compute the two-sided p of a mean difference of 0 with random signs of the items; 1 if no item differs.

    It is exact for single verdicts and for few differing items, else estimated from `RESAMPLES` draws.
    """
    sizes: Counter[int] = Counter()
    unit = math.lcm(*(value.denominator for value in differences))
    for value, count in differences.items():
        if value and count:
            sizes[int(abs(value) * unit)] += count
    total = int(sum(value * count for value, count in differences.items()) * unit)
    p = randomisation.compute_exact_p(sizes, total)
    return _estimate_p(sizes, abs(total)) if p is None else p


def _estimate_p(sizes: Counter[int], total: int) -> float:
    """Estimate the share of random signs whose sum is at least as far from 0 as `total`.

    The observed signs count as one draw, so the smallest result is 1 / (1 + RESAMPLES).
    """
    import numpy as np

    rng = np.random.default_rng(SEED)
    sums = np.zeros(RESAMPLES, dtype=np.int64)
    for size, count in sorted(sizes.items()):
        sums += size * (2 * rng.binomial(count, 0.5, RESAMPLES) - count)
    return float((1 + np.count_nonzero(np.abs(sums) >= total)) / (1 + RESAMPLES))


def reverse_pair(pair: AnyComparison) -> AnyComparison:
    """Return the comparison with the sides swapped."""
    return msgspec.structs.replace(
        pair,
        gained=pair.lost,
        lost=pair.gained,
        difference=_negate(pair.difference),
        corrected=_negate(pair.corrected),
        effect=None if pair.effect is None else -pair.effect,
    )


def _negate(found: Interval | None) -> Interval | None:
    if found is None or found.value is None:
        return found
    return Interval(value=-found.value, low=-found.high, high=-found.low)


def describe_pair(pair: PairComparison) -> str:
    """Describe the comparison in a quotable sentence, which ranks the systems only if the test separates them."""
    if pair.difference is None or pair.difference.value is None:
        return "nothing to compare: there is no item that both have a value for"
    if not pair.gained + pair.lost:
        return f"not separable: no difference on any of {pair.items} items"
    if pair.separable:
        return f"{'better' if pair.difference.value > 0 else 'worse'}: {_format_figures(pair, pair.difference)}"
    hint = f"; a difference like this needs about {pair.needed:,} items" if pair.needed else ""
    return f"not separable at n = {pair.items}: {_format_figures(pair, pair.difference)}{hint}"


def _format_figures(pair: PairComparison, difference: Interval) -> str:
    value, low, high = (f"{100 * (bound or 0):+.1f}" for bound in (difference.value, difference.low, difference.high))
    p = "p < 0.001" if pair.adjusted < 0.001 else f"p = {pair.adjusted:.3f}"
    return f"{value} points ({low} to {high}), +{pair.gained} -{pair.lost} of {pair.items}, {p}"
