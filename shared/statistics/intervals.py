"""Compute confidence intervals of shares, such as accuracy over items, and of counts."""

import msgspec


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its confidence interval."""

    value: float | None
    """None if nothing was observed."""
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Compute Wilson's score interval of `successes` out of `n` (scipy's `binomtest`); for n = 0 it is [0, 1].

    Unlike the normal approximation, it stays inside [0, 1] and does not shrink to a point at 0 or n successes.

    Raises:
        ValueError: unless 0 <= successes <= n and 0 < confidence < 1.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"`successes` must be between 0 and n = {n}, not {successes}")
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, not {confidence}")
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
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, not {confidence}")
    from scipy import stats  # slow to import

    tail = (1 - confidence) / 2
    low = float(stats.chi2.ppf(tail, 2 * count)) / 2 if count else 0.0
    return low, float(stats.chi2.ppf(1 - tail, 2 * count + 2)) / 2
