"""Test whether two systems differ on the same questions, with Holm's correction for several tests.

Student's t is used where information retrieval also uses bootstrap and randomisation: for means over about fifty
queries the three agree (Smucker, Allan and Carterette 2007), and t is fast and needs no draws. If few questions differ,
or all by the same amount, t would assume a spread that was not observed; then the exact randomisation test is used.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from shared.statistics import randomisation

UNIT = 10**12
"""Differences are whole numbers of 1 / UNIT, so that those that differ by rounding only are equal."""
CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over questions with its 95 % interval."""

    value: float | None
    """None: there was no question."""
    low: float | None
    """None: fewer than two questions, or equal values, say nothing about the spread."""
    high: float | None
    n: int


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test, before and after correction for the tests that were made with it."""

    p: float
    """Two-sided."""
    adjusted: float
    """`p` with Holm's correction for the tests that were made together with this one."""
    separable: bool
    """Whether the adjusted p is below 0.05; if not, these questions do not tell the two apart."""


AnyTest = TypeVar("AnyTest", bound=TestResult)


class Difference(TestResult, frozen=True, kw_only=True):
    """The mean of `left - right` over the same questions."""

    value: float
    low: float | None
    """Of Student's 95 % interval; None where all differences are equal, as they show no spread."""
    high: float | None
    effect: float | None
    """Cohen's d of the differences: mean / standard deviation; None where they are all equal."""
    n: int


def estimate_mean(values: Sequence[float], most: float = 1.0) -> Mean:
    """Estimate the mean of values from 0 to `most` with Student's interval, clipped to this range."""
    n = len(values)
    if len(set(values)) < 2:
        return Mean(value=values[0] if values else None, low=None, high=None, n=n)
    centre, half = _mean_and_half_width(values)
    return Mean(value=centre, low=max(0.0, centre - half), high=min(most, centre + half), n=n)


def compare_paired(left: Sequence[float], right: Sequence[float]) -> Difference | None:
    """Test `left - right` question by question; None for fewer than two questions.

    `p` is exact (randomisation test) if at most 16 questions differ or all differ by the same amount, else Student's.

    Raises:
        ValueError: the two sides have different lengths.
    """
    units = [round((one - other) * UNIT) for one, other in zip(left, right, strict=True)]
    n = len(units)
    if n < 2:
        return None
    differences = [unit / UNIT for unit in units]
    centre, half = _mean_and_half_width(differences)
    deviation = _standard_deviation(differences, centre) if len(set(units)) > 1 else 0.0
    p = randomisation.compute_exact_p(Counter(abs(unit) for unit in units if unit), sum(units))
    if p is None:
        p = _student_p(centre / deviation, n)
    return Difference(
        value=centre,
        low=centre - half if deviation else None,
        high=centre + half if deviation else None,
        p=p,
        adjusted=p,
        separable=p < LEVEL,
        effect=centre / deviation if deviation else None,
        n=n,
    )


def correct_family(tests: Sequence[AnyTest | None]) -> list[AnyTest | None]:
    """Correct the p-values of tests that were made together; None stands for a missing test."""
    adjusted = iter(adjust_holm([test.p for test in tests if test]))
    return [test and _with_adjusted_p(test, next(adjusted)) for test in tests]


def _with_adjusted_p(test: AnyTest, p: float) -> AnyTest:
    return msgspec.structs.replace(test, adjusted=p, separable=p < LEVEL)


def adjust_holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, least = [0.0] * len(p), 0.0
    for place, at in enumerate(order):
        least = max(least, min(1.0, (len(p) - place) * p[at]))
        adjusted[at] = least
    return adjusted


def _student_p(effect: float, n: int) -> float:
    from scipy import stats  # slow to import, and most processes never need it

    return float(2 * stats.t.sf(abs(effect) * math.sqrt(n), n - 1))


def _mean_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    from scipy import stats

    n = len(values)
    centre = math.fsum(values) / n
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * _standard_deviation(values, centre) / math.sqrt(n)
    return centre, float(half)


def _standard_deviation(values: Sequence[float], centre: float) -> float:
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))
