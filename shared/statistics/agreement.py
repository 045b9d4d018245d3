"""How far ratings of the same things agree, beyond what chance would do.

Cohen's kappa is of two raters who rated the same; Krippendorff's alpha of any number of raters, not all of whom rated
everything. Both are 1 - observed / expected disagreement of a table of pairs that adds up over what was rated, so one
function computes them, of one table or of a stack of resampled ones. Ratings count from 0 on their scale.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from shared.statistics.bootstrap import AT_ONCE, RESAMPLES, SEED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    """Tables of the shape (..., ratings, ratings), or what was computed of each."""

Table = Sequence[Sequence[int]]
"""Pairs of ratings: [first][second] -> how many."""
Level = Literal["nominal", "ordinal", "interval"]
"""How far two ratings are apart: any alike; by how many ratings lie between them; by the square of their distance."""
DEFINED = 0.95
"""Share of the resamples that have a value, below which there is no interval."""


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """An agreement and its 95 % percentile interval."""

    value: float | None
    """1 is perfect agreement, 0 what chance does. None: all ratings are the same, or nothing was rated twice."""
    low: float | None = None
    """None: too few of the resamples have a value."""
    high: float | None = None


def weighted_kappa(table: Table) -> float | None:
    """Cohen's kappa with quadratic weights (Cohen 1968): 1 - observed / expected squared difference.

    1 is perfect agreement, 0 what ratings of the same frequencies would have by chance. None where chance alone agrees
    perfectly (all ratings are the same) or nothing was rated.
    """
    import numpy as np

    return _value(_kappa(np.array(table, dtype=float), "interval"))


def cohens_kappa(pairs: Sequence[tuple[int, int]], ratings: int, level: Level, seed: int = SEED) -> Coefficient:
    """Cohen's kappa (1960) of two raters, with an interval over what they rated.

    Args:
        pairs: the two ratings of each thing.
        ratings: how many there are on the scale.
        level: `nominal` is the unweighted kappa, `interval` the one with quadratic weights.
        seed: of the resamples.
    """
    return _estimate([_pair(pair, ratings) for pair in pairs], lambda tables: _kappa(tables, level), seed)


def krippendorffs_alpha(units: Sequence[Sequence[int]], ratings: int, level: Level, seed: int = SEED) -> Coefficient:
    """Krippendorff's alpha ("Computing Krippendorff's Alpha-Reliability", 2011), with an interval over units.

    Args:
        units: the ratings of each thing that was rated; one with fewer than two says nothing.
        ratings, level, seed: as of `cohens_kappa`.
    """
    tables = [_coincidences(unit, ratings) for unit in units if len(unit) > 1]
    return _estimate(tables, lambda tables: _alpha(tables, level), seed)


def _pair(pair: tuple[int, int], ratings: int) -> "Array":
    """The table of one pair."""
    import numpy as np

    table = np.zeros((ratings, ratings))
    table[pair] = 1
    return table


def _coincidences(unit: Sequence[int], ratings: int) -> "Array":
    """All ordered pairs of the unit's ratings; together they weigh as much as it has ratings."""
    import numpy as np

    counts = np.bincount(unit, minlength=ratings).astype(float)
    return (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)


def _kappa(tables: "Array", level: Level) -> "Array":
    return _beyond_chance(tables, _distances(level, tables), tables.sum((-2, -1)))


def _alpha(tables: "Array", level: Level) -> "Array":
    """Chance draws two of the ratings without putting the first one back."""
    return _beyond_chance(tables, _distances(level, tables), tables.sum((-2, -1)) - 1)


def _beyond_chance(tables: "Array", distances: "Array", scale: "Array") -> "Array":
    """1 - observed / expected disagreement of each table; NaN where chance leaves no room for any."""
    import numpy as np

    rows, columns = tables.sum(-1), tables.sum(-2)
    observed = (tables * distances).sum((-2, -1))
    expected = (rows[..., :, None] * columns[..., None, :] * distances).sum((-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - scale * observed / expected, np.nan)


def _distances(level: Level, tables: "Array") -> "Array":
    """How far each two ratings are apart, squared; `ordinal` counts the ratings from one to the other."""
    import numpy as np

    places = np.arange(tables.shape[-1], dtype=float)
    if level == "ordinal":
        counts = tables.sum(-1)
        places = counts.cumsum(-1) - counts / 2
    apart = (places[..., :, None] - places[..., None, :]) ** 2
    return (apart > 0).astype(float) if level == "nominal" else apart


def _estimate(units: Sequence["Array"], statistic: Callable[["Array"], "Array"], seed: int) -> Coefficient:
    """`statistic` of the units' tables together, and its interval: units that are alike are drawn as one count."""
    import numpy as np

    if not units:
        return Coefficient(value=None)
    tables, counts = np.unique(np.array(units), axis=0, return_counts=True)
    value = _value(statistic(np.tensordot(counts, tables, 1)))
    rng, total = np.random.default_rng(seed), int(counts.sum())
    drawn = (rng.multinomial(total, counts / total, AT_ONCE) for _ in range(RESAMPLES // AT_ONCE))
    resampled = np.concatenate([statistic(np.tensordot(each, tables, 1)) for each in drawn])
    known = resampled[~np.isnan(resampled)]
    if value is None or len(known) < DEFINED * RESAMPLES:
        return Coefficient(value=value)
    low, high = np.quantile(known, [0.025, 0.975])
    return Coefficient(value=value, low=float(low), high=float(high))


def _value(found: "Array") -> float | None:
    value = float(found)
    return None if value != value else value  # NaN
