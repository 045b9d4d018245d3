"""Confidence intervals, bootstrap, monotone fits and the spread between repeats."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Confidence intervals of shares, such as accuracy over items, and of counts.


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its confidence interval."""

    value: float | None
    """The estimate; null if nothing was observed."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Compute Wilson's score interval of `successes` out of `n` (scipy's `binomtest`); for n = 0 it is [0, 1].

    Unlike the normal approximation, it stays inside [0, 1] and does not shrink to a point at 0 or n successes.

    Raises:
        ValueError: unless 0 <= successes <= n and 0 < confidence < 1.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"`successes` must be between 0 and n = {n}, not {successes}")
    _check_confidence(confidence)
    if n == 0:
        return Interval(value=None, low=0.0, high=1.0)
    from scipy import stats  # slow to import, and most processes never need it

    bounds = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(value=successes / n, low=float(bounds.low), high=float(bounds.high))


def poisson_interval(count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the exact interval of the mean of a Poisson count (Garwood 1936), in the unit of the count.

    Raises:
        ValueError: unless 0 <= count and 0 < confidence < 1.
    """
    if count < 0:
        raise ValueError(f"`count` must be 0 or more, not {count}")
    _check_confidence(confidence)
    from scipy import stats  # slow to import

    tail = (1 - confidence) / 2
    low = float(stats.chi2.ppf(tail, 2 * count)) / 2 if count else 0.0
    return low, float(stats.chi2.ppf(1 - tail, 2 * count + 2)) / 2


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, not {confidence}")


# Counts of items by their values: a mean over items, its interval and its tests need nothing else.
#
# The repeats of an item are one observation: the share of its correct answers (clustered by item). There are few
# distinct shares, so the tables stay small for any number of items.

Graded = Mapping[tuple[int, int], int]
"""Number of items by (correct answers, graded answers), without ungraded items. For a score, the first
is the sum of the answers' values, as a whole number of units."""
Values = Mapping[Fraction, int]
"""Number of items by value, as exact fractions."""
Table = Mapping[tuple[Fraction, Fraction], int]
"""Number of items by their values in two systems."""


def _count(values: Iterable[tuple[Fraction, int]]) -> Values:
    """Add up the numbers of items that have the same value."""
    found: Counter[Fraction] = Counter()
    for value, count in values:
        found[value] += count
    return found


def count_values(graded: Graded, unit: int = 1) -> Values:
    """Count items by their share of correct answers, or by their mean score if `unit` is the value of 1."""
    return _count((Fraction(right, answers * unit), count) for (right, answers), count in graded.items())


def count_items(strata: Iterable[Values] | Iterable[Table]) -> int:
    return sum(sum(stratum.values()) for stratum in strata)


def mean_over_items(strata: Sequence[Values]) -> float | None:
    """Compute the mean over all items with equal weights; return None if there are no items."""
    count = count_items(strata)
    return float(sum(value * n for stratum in strata for value, n in stratum.items()) / count) if count else None


def estimate_share(values: Values) -> Interval:
    """Estimate the mean over items of their shares of correct answers, with Wilson's 95 % interval over items.

    Wilson's interval needs a whole number of right items. If an item's answers differ, the nearest whole number is
    used, which is at most half an item away. The interval of k of n extends at least that far to both sides within
    [0, 1], so it always contains the mean. Without items, the value is None and the interval is [0, 1].
    """
    count = count_items([values])
    right = sum(value * n for value, n in values.items())
    bounds = wilson(round(right), count)
    return Interval(value=mean_over_items([values]), low=bounds.low, high=bounds.high)


def subtract_sides(table: Table) -> Values:
    """Count items by left minus right."""
    return _count((left - right, count) for (left, right), count in table.items())


def take_side(table: Table, at: int) -> Values:
    """Count items by their left (0) or right (1) value."""
    return _count((values[at], count) for values, count in table.items())


def merge_strata(strata: Iterable[Values]) -> Values:
    return _count(item for stratum in strata for item in stratum.items())


# Bootstrap the mean over items within strata (Efron 1979; percentile interval).
#
# Drawing n items with replacement and counting the values equals one multinomial draw of the values' counts, so 9,999
# resamples of 100,000 items cost as much as those of 100. `scipy.stats.bootstrap` would draw every item of every
# resample; a test shows that both draw from the same distribution.

RESAMPLES = 9999
"""Number of resamples, also for tests (scipy's default)."""
RESAMPLES_AT_ONCE = 1111
"""Resamples in memory at once; divides `RESAMPLES`."""
SEED = 0


def bootstrap(strata: Sequence[Values], confidence: float = 0.95, seed: int = SEED) -> Interval | None:
    """Estimate the mean over all items and its percentile interval; return None if there are no items.

    Items are drawn within each stratum (such as a dataset), which keeps its size. The same counts and seed give the
    same interval. If all items of every stratum have one value, the interval is that point; then use `wilson`.

    Raises:
        ValueError: unless 0 < confidence < 1.
    """
    _check_confidence(confidence)
    value = mean_over_items(strata)
    if value is None:
        return None
    import numpy as np  # most processes never need it

    rng = np.random.default_rng(seed)
    means = np.sum([_resample_sums(stratum, rng) for stratum in strata if stratum], axis=0) / count_items(strata)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _resample_sums(stratum: Values, rng: "np.random.Generator") -> "NDArray[np.float64]":
    """Draw the sum of a stratum's values for each resample."""
    import numpy as np

    values, counts = zip(*sorted(stratum.items()), strict=True)  # the result must not depend on the order of counting
    worth, count = np.array([float(value) for value in values]), sum(counts)
    shares = np.array(counts) / count
    drawn = [rng.multinomial(count, shares, RESAMPLES_AT_ONCE) @ worth for _ in range(RESAMPLES // RESAMPLES_AT_ONCE)]
    return np.concatenate(drawn)


# Monotone conversion of one scale to another.

DIGITS = 6
"""Decimals of each value; rounding makes equal labels give equal bytes."""


def fit_monotone(means: Sequence[float | None], weights: Sequence[int]) -> tuple[float, ...]:
    """Fit the values closest to `means` that never fall: isotonic regression by least squares with `weights`.

    scipy pools adjacent violators (Barlow et al. 1972). None in `means` marks a point without observation: its value is
    interpolated between its neighbours, and constant beyond the last observation.

    Raises:
        ValueError: there is no observation.
    """
    import numpy as np
    from scipy import optimize  # slow to import, and most processes never need it

    seen = [
        (place, mean, weight)
        for place, (mean, weight) in enumerate(zip(means, weights, strict=True))
        if mean is not None
    ]
    if not seen:
        raise ValueError("`means` has no observation")
    places, known, counts = zip(*seen, strict=True)
    fitted = optimize.isotonic_regression(known, weights=counts).x
    return tuple(round(float(value), DIGITS) for value in np.interp(range(len(means)), places, fitted))


# Spread between repeats: it shows the effect of sampling, not of the number of items.

SHARED = "repeats shared their replies (greedy decoding): they are one measurement, and std is 0 by construction"
DETERMINISTIC = "greedy decoding is deterministic: std is 0 by construction, unless another stage or the server varies"
JUDGED = (
    "greedy decoding: repeats differ only if the judge model, asked again in each, led to another context; std shows"
    " only that"
)
CLUSTERED = "intervals count items, not samples: repeats of one item are not independent"


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy or another measure by repeat, over the items that have a value in every repeat, so that all repeats
    cover the same items. The standard deviation is not a confidence interval over items."""

    accuracies: tuple[float | None, ...]
    """Share of correct answers, or mean of the measure, by repeat; null for a repeat without a value, and for all
    repeats if no item has a value in every repeat."""
    items: int
    """Number of items that have a value in every repeat."""
    mean: float | None
    """Mean over the repeats that have a value."""
    std: float | None
    """Sample standard deviation (ddof 1) over these repeats; null for fewer than two."""


def explain_repeats(*, greedy: bool, shared: bool, judged: bool = False) -> str:
    """Return the note about the repeats that a reader needs.

    Args:
        greedy: answers were decoded greedily.
        shared: equal calls of several repeats shared their replies.
        judged: the judge model was called again in each repeat.
    """
    if greedy and judged:
        return JUDGED
    if greedy:
        return SHARED if shared else DETERMINISTIC
    return CLUSTERED


def measure_spread(counts: Sequence[tuple[float, int]]) -> Repeats:
    """Measure the spread of (correct, graded) answers by repeat; for a score the first is the sum of its values.

    Only items with a value in every repeat that has values are counted.
    """
    accuracies = tuple(right / graded if graded else None for right, graded in counts)
    known = [each for each in accuracies if each is not None]
    return Repeats(
        accuracies=accuracies,
        items=max((graded for _, graded in counts), default=0),
        mean=statistics.fmean(known) if known else None,
        std=statistics.stdev(known) if len(known) > 1 else None,
    )
