"""How far two vectors of scores agree: Pearson's correlation with its interval, and Spearman's beside it."""

from collections.abc import Sequence
from typing import NamedTuple

FEWEST_FOR_RHO = 4
"""Fisher's z has standard error 1 / sqrt(n - 3): below four pairs there is no interval, and rho says nothing."""
SAME_SCORE = 1e-9
"""Scores within this range of each other are one constant: rounding noise must not make a correlation."""


class Correlation(NamedTuple):
    """Pearson's rho with Fisher's z interval at 95 %, and Spearman's."""

    rho: float | None
    low: float | None = None
    high: float | None = None
    spearman: float | None = None
    undefined: str = ""
    """Why there is no rho."""


def correlate(one: Sequence[float], other: Sequence[float], who: tuple[str, str]) -> Correlation:
    """Correlate two vectors of one length by scipy; `who` names their sources.

    With fewer than four pairs, or a constant vector, the correlation is undefined.
    """
    undefined = _explain_undefined(one, other, who)
    if undefined:
        return Correlation(rho=None, undefined=undefined)
    from scipy import stats  # slow to import, and only a calibration needs it

    pearson = stats.pearsonr(one, other)
    interval = pearson.confidence_interval(0.95)
    return Correlation(
        rho=float(pearson.statistic),
        low=float(interval.low),
        high=float(interval.high),
        spearman=float(stats.spearmanr(one, other).statistic),
    )


def _explain_undefined(one: Sequence[float], other: Sequence[float], who: tuple[str, str]) -> str:
    if len(one) < FEWEST_FOR_RHO:
        return f"only {len(one)} pairs"
    for name, scores in zip(who, (one, other), strict=True):
        if max(scores) - min(scores) <= SAME_SCORE:
            return f"{name} gave every document {scores[0]:g}"
    return ""
