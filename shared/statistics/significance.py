"""Whether two systems differ on the same questions: paired tests, with Holm's correction for several.

Student's t where information retrieval also uses bootstrap and randomisation: on means over some fifty queries the
three agree (Smucker, Allan and Carterette 2007), and t needs neither draws nor time. Where few questions differ, or all
that differ do so by the same amount, t would presume a spread that was not seen: there the randomisation test is exact.
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


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """A test, alone and among those that were made with it."""

    p: float
    """Two-sided."""
    adjusted: float
    """The same with Holm's correction for the tests that were made together with this one."""
    separable: bool
    """Whether the adjusted p is below 0.05; if not, these questions do not tell the two apart."""


AnyTest = TypeVar("AnyTest", bound=Tested)


class Difference(Tested, frozen=True, kw_only=True):
    """The mean of `left - right` over the same questions."""

    value: float
    low: float | None
    """Of Student's 95 % interval; None where all differences are equal, as they show no spread."""
    high: float | None
    effect: float | None
    """Cohen's d of the differences: mean / standard deviation; None where they are all equal."""
    n: int


def mean(values: Sequence[float], most: float = 1.0) -> Mean:
    """Of values from 0 to `most`, which the interval does not leave."""
    n = len(values)
    if len(set(values)) < 2:
        return Mean(value=values[0] if values else None, low=None, high=None, n=n)
    centre, half = _centre(values)
    return Mean(value=centre, low=max(0.0, centre - half), high=min(most, centre + half), n=n)


def paired(left: Sequence[float], right: Sequence[float]) -> Difference | None:
    """The paired test of `left - right`, question by question; None for fewer than two questions.

    `p` is exact (randomisation test) where at most 16 questions differ or all that differ do so by the same amount, and
    Student's else.

    Raises:
        ValueError: there are more values on one side.
    """
    units = [round((one - other) * UNIT) for one, other in zip(left, right, strict=True)]
    n = len(units)
    if n < 2:
        return None
    differences = [unit / UNIT for unit in units]
    centre, half = _centre(differences)
    deviation = _deviation(differences, centre) if len(set(units)) > 1 else 0.0
    p = randomisation.exact(Counter(abs(unit) for unit in units if unit), sum(units))
    if p is None:
        p = _students(centre / deviation, n)
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


def together(tests: Sequence[AnyTest | None]) -> list[AnyTest | None]:
    """The tests as one family; None is no test."""
    adjusted = iter(holm([test.p for test in tests if test]))
    return [test and _adjusted(test, next(adjusted)) for test in tests]


def _adjusted(test: AnyTest, p: float) -> AnyTest:
    return msgspec.structs.replace(test, adjusted=p, separable=p < LEVEL)


def holm(p: Sequence[float]) -> list[float]:
    """The p-values as they stand for so many tests at once (Holm 1979), in the same order."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, least = [0.0] * len(p), 0.0
    for place, at in enumerate(order):
        least = max(least, min(1.0, (len(p) - place) * p[at]))
        adjusted[at] = least
    return adjusted


def _students(effect: float, n: int) -> float:
    from scipy import stats  # slow to import, and most processes never need it

    return float(2 * stats.t.sf(abs(effect) * math.sqrt(n), n - 1))


def _centre(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its interval."""
    from scipy import stats

    n = len(values)
    centre = math.fsum(values) / n
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * _deviation(values, centre) / math.sqrt(n)
    return centre, float(half)


def _deviation(values: Sequence[float], centre: float) -> float:
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))
