"""Bootstrap the mean over items within strata (Efron 1979; percentile interval).

Drawing n items with replacement and counting the values is one multinomial draw of the values' counts, so 9,999
resamples of 100,000 items cost as much as those of 100. `scipy.stats.bootstrap` would hold or make every item of every
resample; a test shows that both draw from the same distribution.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.statistics.intervals import Interval
from shared.statistics.shares import Values, count_items, mean_over_items

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 9999
"""Number of resamples, here and for tests: scipy's default."""
RESAMPLES_AT_ONCE = 1111
"""Resamples in memory at once; divides `RESAMPLES`."""
SEED = 0


def bootstrap(strata: Sequence[Values], confidence: float = 0.95) -> Interval | None:
    """Estimate the mean over all items and its percentile interval; None if there are no items.

    Items are drawn within each stratum (such as a dataset), which keeps its size. The same counts give the same
    interval. If all items of every stratum have one value, the interval is that point: use `wilson` then.

    Raises:
        ValueError: unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, not {confidence}")
    value = mean_over_items(strata)
    if value is None:
        return None
    import numpy as np  # most processes never need it

    rng = np.random.default_rng(SEED)
    means = np.sum([_resample_sums(stratum, rng) for stratum in strata if stratum], axis=0) / count_items(strata)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _resample_sums(stratum: Values, rng: "np.random.Generator") -> "NDArray[np.float64]":
    """Draw the sum of the values for each resample."""
    import numpy as np

    values, counts = zip(*sorted(stratum.items()), strict=True)  # however the counts were collected
    worth, count = np.array([float(value) for value in values]), sum(counts)
    shares = np.array(counts) / count
    drawn = [rng.multinomial(count, shares, RESAMPLES_AT_ONCE) @ worth for _ in range(RESAMPLES // RESAMPLES_AT_ONCE)]
    return np.concatenate(drawn)
