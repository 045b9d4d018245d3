"""Wilson's interval."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.intervals import Interval, poisson_interval, wilson

Z = 1.959963984540054
COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS)
def test_bounds_follow_wilsons_formula(counts: tuple[int, int]) -> None:
    successes, n = counts
    p = successes / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    interval = wilson(successes, n)
    assert (interval.low, interval.high) == (
        pytest.approx(centre - half, abs=1e-9),
        pytest.approx(centre + half, abs=1e-9),
    )
    assert interval.value == p


def test_86_of_100_is_not_separable_from_81() -> None:
    interval = wilson(86, 100)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.7786, 0.9147)


@given(COUNTS)
def test_the_interval_holds_its_value_and_stays_in_range(counts: tuple[int, int]) -> None:
    interval = wilson(*counts)
    assert interval.value is not None
    assert 0 <= interval.low <= interval.value + 1e-12
    assert interval.value - 1e-12 <= interval.high <= 1


def test_no_success_still_leaves_doubt() -> None:
    assert wilson(0, 10).low == 0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).low == pytest.approx(1 - 0.2775, abs=1e-4)


def test_nothing_observed_has_no_value_and_the_widest_interval() -> None:
    assert wilson(0, 0) == Interval(value=None, low=0.0, high=1.0)


def test_more_confidence_is_a_wider_interval() -> None:
    wide, usual, narrow = (wilson(30, 50, confidence) for confidence in (0.99, 0.95, 0.8))
    assert wide.low < usual.low < narrow.low < narrow.high < usual.high < wide.high


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (1, 0), (0, -1)])
def test_impossible_counts_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="`successes`"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_in_per_cent_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="`confidence`"):
        wilson(1, 2, confidence)


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (30, 20.241, 42.827)]
)
def test_the_interval_of_a_count_is_garwoods(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == (pytest.approx(low, abs=6e-4), pytest.approx(high, abs=6e-4))


@pytest.mark.parametrize(("count", "confidence"), [(-1, 0.95), (3, 0.0), (3, 1.0)])
def test_an_impossible_count_or_confidence_is_refused(count: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        poisson_interval(count, confidence)
