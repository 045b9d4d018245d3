"""Calibrate thresholds from labelled data: from which score on a list is trusted, and below which it is not."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_OBSERVATIONS = 20
"""The fewest relevant and the fewest irrelevant observations for a calibration."""
RESAMPLES = 1000
TAILS = (2.5, 97.5)
ROUNDING = 1e-6
"""Tolerance in observations: in binary, 1 - 0.9 is less than a tenth."""


class TooFewObservations(ValueError):
    """There are too few relevant or irrelevant observations."""


class CalibratedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold with its 95 % interval (percentile bootstrap over the observations)."""

    value: float | None
    """None if no threshold meets the criterion."""
    low: float | None
    high: float | None
    met: float
    """Share of the resamples with a threshold; the interval is taken over these."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The calibrated thresholds and the data that they come from."""

    trust: float
    observations: int
    relevant: int
    upper: CalibratedThreshold
    """The lowest score from which on the share of relevant observations is at least `trust`."""
    lower: CalibratedThreshold
    """The highest score below which that share is at most 1 - `trust`."""


def calibrate(pairs: Sequence[tuple[float, bool]], trust: float = 0.9, seed: int = 0) -> Calibration:
    """Calibrate thresholds from (score, relevant) pairs; the same pairs and seed give the same figures.

    Raises:
        TooFew: fewer than 20 relevant or irrelevant pairs.
        ValueError: unless 0.5 <= trust < 1.
    """
    if not 0.5 <= trust < 1:
        raise ValueError(f"`trust` must be at least 0.5 and below 1, not {trust}")
    relevant = sum(label for _, label in pairs)
    if min(relevant, len(pairs) - relevant) < MIN_OBSERVATIONS:
        raise TooFewObservations(
            f"{relevant} relevant and {len(pairs) - relevant} irrelevant observations: thresholds need at least "
            f"{MIN_OBSERVATIONS} of each"
        )
    import numpy as np  # most processes never need it

    scores, place = np.unique([score for score, _ in pairs], return_inverse=True)
    labels: NDArray[np.float64] = np.array([label for _, label in pairs], dtype=float)
    found = np.array(
        [
            _find_thresholds(scores, _sum_weights(place, weights), _sum_weights(place, weights * labels), trust)
            for weights in _draw_weights(len(pairs), seed)
        ]
    )
    return Calibration(
        trust=trust,
        observations=len(pairs),
        relevant=relevant,
        upper=_summarise_threshold(found[:, 0]),
        lower=_summarise_threshold(found[:, 1]),
    )


def _sum_weights(place: Any, weights: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Sum the weights of the observations with the same score."""
    import numpy as np

    return np.bincount(place, weights).astype(np.float64)


def _draw_weights(count: int, seed: int) -> "Iterator[NDArray[np.float64]]":
    """Yield the weight of each observation: first 1 for the data, then one resample at a time to save memory."""
    import numpy as np

    rng = np.random.default_rng(seed)
    yield np.ones(count)
    for _ in range(RESAMPLES):
        yield rng.multinomial(count, np.full(count, 1 / count)).astype(float)


def _find_thresholds(
    scores: "NDArray[np.float64]", total: "NDArray[np.float64]", relevant: "NDArray[np.float64]", trust: float
) -> tuple[float, float]:
    """Return the upper and the lower threshold; NaN if there is none. `total` and `relevant` count the observations
    that have each of the rising `scores`."""
    import numpy as np

    from_here, relevant_here = (np.cumsum(each[::-1])[::-1] for each in (total, relevant))
    trusted = np.flatnonzero((from_here > 0) & (relevant_here >= trust * from_here - ROUNDING))
    below, relevant_below = (np.cumsum(each) - each for each in (total, relevant))
    distrusted = np.flatnonzero((below > 0) & (relevant_below <= (1 - trust) * below + ROUNDING))
    upper = scores[trusted[0]] if len(trusted) else math.nan
    return upper, scores[distrusted[-1]] if len(distrusted) else math.nan


def _summarise_threshold(found: "NDArray[np.float64]") -> CalibratedThreshold:
    import numpy as np

    first, resampled = found[0], found[1:][~np.isnan(found[1:])]
    low, high = np.percentile(resampled, TAILS) if len(resampled) else (None, None)
    met = len(resampled) / (len(found) - 1)
    return CalibratedThreshold(value=_replace_nan(first), low=_replace_nan(low), high=_replace_nan(high), met=met)


def _replace_nan(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
