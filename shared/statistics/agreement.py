"""Measure how far ratings of the same things agree beyond chance, and how well scores tell two classes apart.

Cohen's kappa compares two raters of the same things; Krippendorff's alpha takes any number of raters, who need not have
rated everything. Both are 1 - observed / expected disagreement over a table of pairs, so one function computes them,
for one table or for a stack of resampled tables. Ratings count from 0.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from mathrag.intervals import RESAMPLES, RESAMPLES_AT_ONCE, SEED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]
    """Tables of the shape (..., ratings, ratings), or one value for each table."""

CountTable = Sequence[Sequence[int]]
"""Counts of pairs of ratings: [first][second]."""
Level = Literal["nominal", "ordinal", "interval"]
"""The distance of two different ratings: always 1, the number of ratings between them, or the squared difference."""
MIN_DEFINED_SHARE = 0.95
"""The smallest share of resamples with a value for which there is an interval."""


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """A coefficient of agreement and its 95 % percentile interval."""

    value: float | None
    """The coefficient: 1 is perfect agreement, 0 agreement by chance. Null if all ratings are equal, or if nothing was
    rated twice."""
    low: float | None = None
    """Lower end of the interval; null if too few of the resamples have a value."""
    high: float | None = None
    """Upper end of the interval; null if too few of the resamples have a value."""


def compute_weighted_kappa(table: CountTable) -> float | None:
    """Compute Cohen's kappa with quadratic weights (Cohen 1968): 1 - observed / expected squared difference.

    1 is perfect agreement, 0 the agreement of random ratings with the same frequencies. None if all ratings are the
    same or nothing was rated.
    """
    import numpy as np

    return _replace_nan(_compute_kappa(np.array(table, dtype=float), "interval"))


def estimate_cohens_kappa(
    pairs: Sequence[tuple[int, int]], ratings: int, level: Level, seed: int = SEED
) -> Coefficient:
    """Estimate Cohen's kappa (1960) of two raters, with a bootstrap interval over the rated things.

    Args:
        pairs: the two ratings of each thing.
        ratings: number of ratings on the scale.
        level: `nominal` gives the unweighted kappa, `interval` the one with quadratic weights.
        seed: seed of the resamples.
    """
    import numpy as np

    tables = np.zeros((len(pairs), ratings, ratings))
    for table, pair in zip(tables, pairs, strict=True):
        table[pair] = 1
    return _estimate(tables, lambda tables: _compute_kappa(tables, level), seed)


def estimate_krippendorffs_alpha(
    units: Sequence[Sequence[int]], ratings: int, level: Level, seed: int = SEED
) -> Coefficient:
    """Estimate Krippendorff's alpha ("Computing Krippendorff's Alpha-Reliability", 2011) with an interval over units.

    Args:
        units: the ratings of each rated thing; units with fewer than two ratings are ignored.
        ratings, level, seed: as for `estimate_cohens_kappa`.
    """
    import numpy as np

    tables = []
    for unit in units:
        if len(unit) > 1:
            # Count all ordered pairs of the unit's ratings; they weigh as much together as it has ratings.
            counts = np.bincount(unit, minlength=ratings).astype(float)
            tables.append((np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1))

    def compute_alpha(tables: "Array") -> "Array":  # by chance, two ratings are drawn without replacement
        return _compare_to_chance(tables, _square_distances(level, tables), tables.sum((-2, -1)) - 1)

    return _estimate(tables, compute_alpha, seed)


def compute_auroc(positive: "Array", scores: "Array", axis: int = -1) -> "Array":
    """Compute the area under the ROC curve: how often a positive has a higher score than a negative (ties count half).

    Args:
        positive: 1 for each positive and 0 for each negative; there must be at least one of each.
        scores: their scores; the shape is that of `positive`, or has further axes before it.
        axis: the axis along which things are counted.
    """
    from scipy.stats import rankdata  # slow to import, and most processes never need it

    count = positive.sum(axis=axis)
    ranks = (rankdata(scores, axis=axis) * positive).sum(axis=axis)  # Mann and Whitney's U is a share of all pairs
    return (ranks - count * (count + 1) / 2) / (count * (positive.shape[axis] - count))  # type: ignore[no-any-return]


def compute_auroc_of(positives: "ArrayLike", negatives: "ArrayLike", axis: int = -1) -> "Array":
    """Compute the same from the scores of the positives and those of the negatives; `axis` must be the last one."""
    import numpy as np

    positive = np.repeat([1.0, 0.0], [np.shape(positives)[axis], np.shape(negatives)[axis]])
    return compute_auroc(positive, np.concatenate((positives, negatives), axis=axis))


def _compute_kappa(tables: "Array", level: Level) -> "Array":
    return _compare_to_chance(tables, _square_distances(level, tables), tables.sum((-2, -1)))


def _compare_to_chance(tables: "Array", distances: "Array", scale: "Array") -> "Array":
    """Return 1 - observed / expected disagreement of each table; NaN if no disagreement is expected."""
    import numpy as np

    rows, columns = tables.sum(-1), tables.sum(-2)
    observed = (tables * distances).sum((-2, -1))
    expected = (rows[..., :, None] * columns[..., None, :] * distances).sum((-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - scale * observed / expected, np.nan)


def _square_distances(level: Level, tables: "Array") -> "Array":
    """Square the distance of each two ratings; `ordinal` counts the ratings between them."""
    import numpy as np

    places = np.arange(tables.shape[-1], dtype=float)
    if level == "ordinal":
        counts = tables.sum(-1)
        places = counts.cumsum(-1) - counts / 2
    apart = (places[..., :, None] - places[..., None, :]) ** 2
    return (apart > 0).astype(float) if level == "nominal" else apart


def _estimate(units: "Sequence[Array] | Array", statistic: Callable[["Array"], "Array"], seed: int) -> Coefficient:
    """Compute `statistic` over all units with its interval; equal units are drawn as one count."""
    import numpy as np

    if not len(units):
        return Coefficient(value=None)
    tables, counts = np.unique(np.array(units), axis=0, return_counts=True)
    value = _replace_nan(statistic(np.tensordot(counts, tables, 1)))
    rng, total = np.random.default_rng(seed), int(counts.sum())
    drawn = (rng.multinomial(total, counts / total, RESAMPLES_AT_ONCE) for _ in range(RESAMPLES // RESAMPLES_AT_ONCE))
    resampled = np.concatenate([statistic(np.tensordot(each, tables, 1)) for each in drawn])
    known = resampled[~np.isnan(resampled)]
    if value is None or len(known) < MIN_DEFINED_SHARE * RESAMPLES:
        return Coefficient(value=value)
    low, high = np.quantile(known, [0.025, 0.975])
    return Coefficient(value=value, low=float(low), high=float(high))


def _replace_nan(found: "Array") -> float | None:
    value = float(found)
    return None if value != value else value  # NaN
