"""Bootstrap interval of a mean over items, drawn within strata (Efron 1979; percentile interval).

Drawing n items with replacement and counting how often each value came up is one multinomial draw of the values'
counts, so 9,999 resamples of 100,000 items cost as much as those of 100. `scipy.stats.bootstrap` would hold or make
every item of every resample; a test shows that both draw from the same distribution.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.statistics.intervals import Interval
from shared.statistics.shares import Values, items, mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 9999
"""scipy's default, here and for tests."""
AT_ONCE = 1111
"""Resamples that are held together; divides `RESAMPLES`."""
SEED = 0


def bootstrap(strata: Sequence[Values], confidence: float = 0.95) -> Interval | None:
    """The mean over all items and its percentile interval; None where there is no item.

    Items are drawn anew within each stratum (such as a dataset), which keeps its number of them. The same counts give
    the same interval. Where all items of every stratum have one value, the interval is that point: then ask `wilson`.

    Raises:
        ValueError: unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1, not {confidence}")
    value = mean(strata)
    if value is None:
        return None
    import numpy as np  # most processes never need it

    rng = np.random.default_rng(SEED)
    means = np.sum([_sums(stratum, rng) for stratum in strata if stratum], axis=0) / items(strata)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _sums(stratum: Values, rng: "np.random.Generator") -> "NDArray[np.float64]":
    """The sum of the values in each resample."""
    import numpy as np

    values, counts = zip(*sorted(stratum.items()), strict=True)  # however the counts were collected
    worth, count = np.array([float(value) for value in values]), sum(counts)
    shares = np.array(counts) / count
    drawn = [rng.multinomial(count, shares, AT_ONCE) @ worth for _ in range(RESAMPLES // AT_ONCE)]
    return np.concatenate(drawn)
