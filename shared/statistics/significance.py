"""Whether two systems differ: paired tests, randomisation and power."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import msgspec

from mathrag import intervals
from mathrag.intervals import RESAMPLES, SEED, Interval, Table, Values, bootstrap

# Run the paired randomisation test (Fisher 1935) exactly.

MAX_ENUMERATED = 16
"""The most differences for which all 2^16 signs are tried, in a few milliseconds."""


def compute_exact_p(sizes: Counter[int], total: int) -> float | None:
    """Compute the two-sided p of a sum of 0 over all signs; None for too many differences of several sizes.

    `sizes` counts the absolute differences without zeros, `total` is the sum of all differences. More than
    `MAX_ENUMERATED` are too many. Equal sizes give the sign test (McNemar's exact test), however many they are.
    """
    if not sizes:
        return 1.0
    if len(sizes) == 1:
        from scipy.stats import binomtest  # slow to import, and most processes never need it

        ((size, count),) = sizes.items()
        return float(binomtest((count + total // size) // 2, count).pvalue)
    if sizes.total() <= MAX_ENUMERATED:
        import numpy as np

        sums = np.zeros(1, dtype=np.int64)
        for size in sizes.elements():
            sums = np.concatenate([sums - size, sums + size])
        return float(np.mean(np.abs(sums) >= abs(total)))
    return None


# Test whether two systems differ on the same questions, with Holm's correction for several tests.
#
# Student's t is used where information retrieval also uses bootstrap and randomisation: for means over about fifty
# queries the three agree (Smucker, Allan and Carterette 2007), and t is fast and needs no draws. If few questions
# differ, or all by the same amount, t would assume a spread that was not observed; then the exact randomisation test
# is used.

UNIT = 10**12
"""Differences are whole numbers of 1 / UNIT, so that those that differ by rounding only are equal."""
CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over questions with its 95 % interval."""

    value: float | None
    """The mean; null without questions."""
    low: float | None
    """Lower end of the interval; null for fewer than two questions, or if all values are equal."""
    high: float | None
    """Upper end of the interval; null for fewer than two questions, or if all values are equal."""
    n: int
    """Number of questions."""


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a test, before and after correction for the other tests."""

    p: float
    """Two-sided p-value."""
    adjusted: float
    """The p-value with Holm's correction for the tests made together with this one."""
    separable: bool
    """Whether the adjusted p-value is below 0.05. If not, these questions do not show a difference."""


AnyTest = TypeVar("AnyTest", bound=TestResult)


class Difference(TestResult, frozen=True, kw_only=True):
    """The mean of `left - right` over the same questions."""

    value: float
    """The mean difference."""
    low: float | None
    """Lower end of Student's 95 % interval; null if all differences are equal."""
    high: float | None
    """Upper end of Student's 95 % interval; null if all differences are equal."""
    effect: float | None
    """Cohen's d of the differences: mean / standard deviation; null if all differences are equal."""
    n: int
    """Number of questions."""


def estimate_mean(values: Sequence[float], most: float = 1.0) -> Mean:
    """Estimate the mean of values from 0 to `most` with Student's interval, clipped to this range."""
    n = len(values)
    if len(set(values)) < 2:
        return Mean(value=values[0] if values else None, low=None, high=None, n=n)
    centre, half = _mean_and_half_width(values)
    return Mean(value=centre, low=max(0.0, centre - half), high=min(most, centre + half), n=n)


def compare_paired(left: Sequence[float], right: Sequence[float]) -> Difference | None:
    """Test `left - right` question by question; None for fewer than two questions.

    `p` is exact (randomisation test) if at most 16 questions differ or all differ by the same amount, else Student's.

    Raises:
        ValueError: the two sides have different lengths.
    """
    units = [round((one - other) * UNIT) for one, other in zip(left, right, strict=True)]
    n = len(units)
    if n < 2:
        return None
    differences = [unit / UNIT for unit in units]
    centre, half = _mean_and_half_width(differences)
    deviation = _standard_deviation(differences, centre) if len(set(units)) > 1 else 0.0
    p = compute_exact_p(Counter(abs(unit) for unit in units if unit), sum(units))
    if p is None:
        from scipy import stats  # slow to import, and most processes never need it

        p = float(2 * stats.t.sf(abs(centre / deviation) * math.sqrt(n), n - 1))
    return Difference(
        value=centre,
        low=centre - half if deviation else None,
        high=centre + half if deviation else None,
        p=p,
        adjusted=p,
        separable=p < LEVEL,
        effect=centre / deviation if deviation else None,
        n=n,
    )


def correct_family(tests: Sequence[AnyTest | None]) -> list[AnyTest | None]:
    """Correct the p-values of tests that were made together; None stands for a missing test."""
    made = [test for test in tests if test]
    corrected = iter(
        msgspec.structs.replace(test, adjusted=p, separable=p < LEVEL)
        for test, p in zip(made, adjust_holm([test.p for test in made]), strict=True)
    )
    return [test and next(corrected) for test in tests]


def adjust_holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, least = [0.0] * len(p), 0.0
    for place, at in enumerate(order):
        least = max(least, min(1.0, (len(p) - place) * p[at]))
        adjusted[at] = least
    return adjusted


def _mean_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    from scipy import stats

    n = len(values)
    centre = math.fsum(values) / n
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * _standard_deviation(values, centre) / math.sqrt(n)
    return centre, float(half)


def _standard_deviation(values: Sequence[float], centre: float) -> float:
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


# Estimate how many items would separate two systems whose differences stay as observed.

POWER = 0.8
"""Probability of detecting such a difference (Cohen 1988, section 2.4)."""


def estimate_needed_items(differences: Values, power: float = POWER, level: float = LEVEL) -> int | None:
    """Estimate the items that a two-sided paired test of such differences needs; None if their mean is 0.

    The formula is Connor's (1987) for single verdicts, where the mean square is the share of differing items; it holds
    for shares of repeats in the same way. It does not correct for several tests.

    Raises:
        ValueError: unless `power` and `level` are between 0 and 1.
    """
    if not (0 < power < 1 and 0 < level < 1):
        raise ValueError(f"`power` and `level` must be between 0 and 1, not {power} and {level}")
    count = sum(differences.values())
    mean = float(sum(value * n for value, n in differences.items()) / count) if count else 0.0
    if mean == 0:
        return None
    from scipy.stats import norm  # slow to import, and most processes never need it

    square = float(sum(value * value * n for value, n in differences.items()) / count)
    found, missed = float(norm.isf(level / 2)), float(norm.ppf(power))
    spread = found * math.sqrt(square) + missed * math.sqrt(max(0.0, square - mean * mean))
    return math.ceil((spread / mean) ** 2)


# Compare two systems on the same items: whether they differ, by how much, and in words.
#
# With one verdict for each item, the test is McNemar's exact test. With several, the share of an item's correct
# repeats is one observation, and the test is the paired randomisation test of the mean difference (Fisher 1935), which
# for single verdicts equals McNemar's exact test. A majority vote over repeats would answer another question: it would
# prefer a system that is right on every item nine times in ten to one that is always right on nine items of ten.

MAX_CORRECTED = RESAMPLES // 200
"""The most comparisons that `RESAMPLES` can correct for: five resamples lie beyond each bound."""


class PairComparison(TestResult, frozen=True, kw_only=True):
    """The comparison of one system (left) with another (right), over the items that both have a value for.

    `p` is two-sided, from McNemar's exact test, or from the paired randomisation test for repeats or a score.
    """

    items: int
    """Number of items that both systems have a value for."""
    gained: int
    """Number of items that the left system has right more often, or with a higher score."""
    lost: int
    """Number of items that the right system has right more often, or with a higher score."""
    difference: Interval | None
    """Difference of the means over these items, left minus right, with a 95 % bootstrap interval over items, resampled
    within datasets and not corrected for other comparisons; null without common items."""
    corrected: Interval | None
    """The same with Bonferroni's correction (Dunn 1961): with m comparisons, each has an interval of 1 - 0.05 / m, so
    that all hold at once in 95 % of cases. Holm's test is more powerful: a difference may be separable although its
    corrected interval includes 0. Null without common items, or with more than 49 comparisons."""
    effect: float | None
    """Cohen's h (1988, section 6.2): 0.2 is small, 0.5 medium, 0.8 large. For a score, Cohen's d of the differences:
    mean / standard deviation; null if all differences are equal."""
    needed: int | None
    """Number of items that would show this difference with a probability of 80 %; null without a difference."""


AnyComparison = TypeVar("AnyComparison", bound=PairComparison)


def compare_pair(strata: Sequence[Table], *, degrees: bool = False, tests: int = 1) -> PairComparison:
    """Compare the pair, pooled over strata (such as datasets): items are compared and drawn within their stratum.

    Args:
        degrees: whether the values are scores instead of shares of correct answers.
        tests: the number of comparisons made together, including this one. p is corrected by `correct_family`.
    """
    apart = [intervals.subtract_sides(table) for table in strata]
    together = intervals.merge_strata(apart)
    p = compute_p(together)
    means = (intervals.mean_over_items([intervals.take_side(table, at) for table in strata]) for at in (0, 1))
    return PairComparison(
        items=intervals.count_items(strata),
        gained=sum(count for value, count in together.items() if value > 0),
        lost=sum(count for value, count in together.items() if value < 0),
        difference=bootstrap(apart),
        corrected=bootstrap(apart, 1 - LEVEL / tests) if tests <= MAX_CORRECTED else None,
        effect=cohens_d(together) if degrees else cohens_h(*means),
        needed=estimate_needed_items(together),
        p=p,
        adjusted=p,
        separable=p < LEVEL,
    )


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
    p = compute_exact_p(sizes, total)
    if p is not None:
        return p
    import numpy as np

    # The share of random signs whose sum is at least as far from 0; the observed signs count as one draw.
    rng = np.random.default_rng(SEED)
    sums = np.zeros(RESAMPLES, dtype=np.int64)
    for size, count in sorted(sizes.items()):
        sums += size * (2 * rng.binomial(count, 0.5, RESAMPLES) - count)
    return float((1 + np.count_nonzero(np.abs(sums) >= abs(total))) / (1 + RESAMPLES))


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
        return "nothing to compare: the two have no common item with a value"
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
