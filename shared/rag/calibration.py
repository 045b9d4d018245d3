"""Thresholds from labelled data: from which score on a list can be trusted, below which it cannot."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEWEST = 20
"""Relevant and irrelevant observations each, below which nothing can be said of either."""
RESAMPLES = 1000
TAILS = (2.5, 97.5)
ROUNDING = 1e-6
"""Observations: 1 - 0.9 is less than a tenth in binary, and one of ten is a tenth."""


class TooFew(ValueError):
    """There are not enough observations of one kind."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold with its 95 % interval (percentile bootstrap over the observations)."""

    value: float | None
    """None: no threshold meets the criterion."""
    low: float | None
    high: float | None
    met: float
    """Share of the resamples in which one does; the interval is of these."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds, and what they were made of."""

    trust: float
    observations: int
    relevant: int
    upper: Bound
    """The lowest score from which on the share of relevant observations is at least `trust`."""
    lower: Bound
    """The highest score below which that share is at most 1 - `trust`."""


def calibrate(pairs: Sequence[tuple[float, bool]], trust: float = 0.9, seed: int = 0) -> Calibration:
    """Thresholds from (score, relevant) pairs; the same pairs and seed give the same figures.

    Raises:
        TooFew: fewer than 20 relevant or irrelevant pairs.
        ValueError: unless 0.5 <= trust < 1.
    """
    if not 0.5 <= trust < 1:
        raise ValueError(f"`trust` must be at least 0.5 and below 1, not {trust}")
    relevant = sum(label for _, label in pairs)
    if min(relevant, len(pairs) - relevant) < FEWEST:
        raise TooFew(
            f"{relevant} relevant and {len(pairs) - relevant} irrelevant observations: thresholds need at least "
            f"{FEWEST} of each"
        )
    import numpy as np  # most processes never need it

    scores, place = np.unique([score for score, _ in pairs], return_inverse=True)
    labels: NDArray[np.float64] = np.array([label for _, label in pairs], dtype=float)
    found = np.array(
        [
            _thresholds(scores, _added(place, weights), _added(place, weights * labels), trust)
            for weights in _resamples(len(pairs), seed)
        ]
    )
    return Calibration(
        trust=trust, observations=len(pairs), relevant=relevant, upper=_bound(found[:, 0]), lower=_bound(found[:, 1])
    )


def _added(place: Any, weights: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """The weights of all observations that have the same score."""
    import numpy as np

    return np.bincount(place, weights).astype(np.float64)


def _resamples(count: int, seed: int) -> "Iterator[NDArray[np.float64]]":
    """How often each observation counts: once in the data, then resample by resample, for jobs are long."""
    import numpy as np

    rng = np.random.default_rng(seed)
    yield np.ones(count)
    for _ in range(RESAMPLES):
        yield rng.multinomial(count, np.full(count, 1 / count)).astype(float)


def _thresholds(
    scores: "NDArray[np.float64]", total: "NDArray[np.float64]", relevant: "NDArray[np.float64]", trust: float
) -> tuple[float, float]:
    """Upper and lower; NaN where there is none. `total` and `relevant` count the observations that have each of the
    rising `scores`."""
    import numpy as np

    from_here, relevant_here = (np.cumsum(each[::-1])[::-1] for each in (total, relevant))
    trusted = np.flatnonzero((from_here > 0) & (relevant_here >= trust * from_here - ROUNDING))
    below, relevant_below = (np.cumsum(each) - each for each in (total, relevant))
    distrusted = np.flatnonzero((below > 0) & (relevant_below <= (1 - trust) * below + ROUNDING))
    upper = scores[trusted[0]] if len(trusted) else math.nan
    return upper, scores[distrusted[-1]] if len(distrusted) else math.nan


def _bound(found: "NDArray[np.float64]") -> Bound:
    import numpy as np

    first, resampled = found[0], found[1:][~np.isnan(found[1:])]
    low, high = np.percentile(resampled, TAILS) if len(resampled) else (None, None)
    met = len(resampled) / (len(found) - 1)
    return Bound(value=_number(first), low=_number(low), high=_number(high), met=met)


def _number(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
