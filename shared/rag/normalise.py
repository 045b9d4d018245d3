"""Scores of one list made comparable with those of another: min-max, z-score, sigmoid, rank.

Two questions that implementations answer differently (ranx gives 0 to every document of a constant list, seed document
003 gives 0.5, llama_index 1; AutoRAG divides by zero) have one answer for all four:

- *A document that a list misses* ranks behind all that it holds, so its value is the highest that it can have there:
  that of the last document, or the next rank. Never the mean, which z-scores call 0.
- *A constant list* says only that its documents are better than those that it misses. They get what the better one of
  a list of two gets, and a missing one what the other gets.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from shared import canonical


class Normalised(NamedTuple):
    """The normalised scores of a list in order, and the value of any document that it misses."""

    found: list[float]
    missing: float


Normaliser = Callable[[Sequence[float]], Normalised]
"""Never lowers a document below one with a lower score. Raises ValueError for scores that are not finite."""


def min_max(scores: Sequence[float]) -> Normalised:
    """Map scores to (score - lowest) / (highest - lowest), in [0, 1]; a missing one to 0. A constant list becomes 1."""
    low, high = _bounds(scores)
    if low == high:
        return Normalised([1.0] * len(scores), 0.0)
    return Normalised([(score - low) / (high - low) for score in scores], 0.0)


def z_score(scores: Sequence[float]) -> Normalised:
    """Convert scores to standard deviations above the mean (the variance is divided by n); missing: the lowest of them.

    In a constant list each gets 1, and missing -1: the z-scores of a list that is half one score and half another.
    """
    return _standardise(scores, center=None)


def sigmoid(scores: Sequence[float], center: float | None = None) -> Normalised:
    """Map scores to 1 / (1 + exp(-z)), where z counts standard deviations from `center`, by default the mean (003).

    The result is relative to the list, whose middle always gets 0.5, however bad it is: set no threshold on it.
    """
    found, missing = _standardise(scores, center)
    return Normalised([logistic(z) for z in found], logistic(missing))


def rank(scores: Sequence[float]) -> Normalised:
    """Map each score to 1 - (scores above it) / n: the best gets 1, equal ones the same; missing 0, the next rank."""
    _bounds(scores)
    above = {score: place for place, score in reversed(list(enumerate(sorted(scores, reverse=True))))}
    return Normalised([1 - above[score] / len(scores) for score in scores], 0.0)


NORMALISERS: dict[Literal["min-max", "z-score", "sigmoid", "rank"], Normaliser] = {
    "min-max": min_max,
    "z-score": z_score,
    "sigmoid": sigmoid,
    "rank": rank,
}


def logistic(logit: float) -> float:
    """Compute 1 / (1 + exp(-logit)), the probability of a logit, without overflow for any finite number."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1 + odds)


def _standardise(scores: Sequence[float], center: float | None) -> Normalised:
    low, high = _bounds(scores)
    if not scores:
        return Normalised([], -1.0)
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    if low == high or deviation == 0:
        return Normalised([1.0] * len(scores), -1.0)
    middle = mean if center is None else center
    return Normalised([(score - middle) / deviation for score in scores], (low - middle) / deviation)


def _bounds(scores: Sequence[float]) -> tuple[float, float]:
    for score in scores:
        canonical.require_finite(score, "score")
    return min(scores, default=0.0), max(scores, default=0.0)
