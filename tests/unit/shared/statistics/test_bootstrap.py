"""The bootstrap over items, held against scipy's, which draws every item of every resample."""

import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shared.statistics import intervals
from shared.statistics.intervals import RESAMPLES, RESAMPLES_AT_ONCE, Interval, bootstrap

SHARES = st.fractions(0, 1, max_denominator=5)
VALUES = st.dictionaries(SHARES, st.integers(1, 40), min_size=1, max_size=6)


def drawn(*strata: intervals.Values) -> Interval:
    found = bootstrap(strata)
    assert found is not None
    return found


def spelled(values: intervals.Values) -> list[float]:
    return [float(value) for value, count in values.items() for _ in range(count)]


@pytest.mark.parametrize(
    "values",
    [
        {Fraction(0): 39, Fraction(1): 61},
        {Fraction(0): 20, Fraction(1, 5): 13, Fraction(2, 5): 5, Fraction(4, 5): 30, Fraction(1): 132},
        {Fraction(-1): 17, Fraction(0): 462, Fraction(1): 21},
    ],
)
def test_it_is_scipys_percentile_interval(values: intervals.Values) -> None:
    items = spelled(values)
    theirs = stats.bootstrap((items,), np.mean, method="percentile", batch=100, rng=np.random.default_rng(7))
    found = drawn(values)
    assert found.value == pytest.approx(np.mean(items))
    near = theirs.standard_error / 10 + 1 / len(items)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval), abs=near)


def test_strata_are_drawn_apart_and_every_item_counts_alike() -> None:
    easy, hard = {Fraction(1): 95, Fraction(0): 5}, {Fraction(1): 10, Fraction(0): 290}
    together, apart = drawn(intervals.merge_strata([easy, hard])), drawn(easy, hard)
    assert apart.value == together.value == pytest.approx(105 / 400)
    assert apart.high - apart.low < 0.6 * (together.high - together.low)
    spread = np.sqrt(100 * 0.95 * 0.05 + 300 * (1 / 30) * (29 / 30)) / 400
    assert apart.high - apart.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


@settings(max_examples=20)
@given(VALUES)
def test_the_interval_holds_the_mean_and_stays_among_the_values(values: intervals.Values) -> None:
    found = drawn(values)
    assert found.value is not None
    assert float(min(values)) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= float(max(values)) + 1e-9


@settings(max_examples=10)
@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_the_same_items_have_the_same_interval_however_they_were_counted(
    one: intervals.Values,
    other: intervals.Values,
    random,  # type: ignore[no-untyped-def]
) -> None:
    shuffled = list(one.items())
    random.shuffle(shuffled)
    assert drawn(one, other) == drawn(dict(shuffled), other)


@settings(max_examples=10)
@given(VALUES)
def test_exchanging_the_sides_of_a_difference_exchanges_its_bounds(values: intervals.Values) -> None:
    one, other = drawn(values), drawn({-value: count for value, count in values.items()})
    width = one.high - one.low
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=0.1 * width + 1e-9)


def test_repeats_do_not_narrow_it() -> None:
    once = Counter({(1, 1): 60, (0, 1): 40})
    five = Counter({(5, 5): 60, (0, 5): 40})
    assert drawn(intervals.count_values(once)) == drawn(intervals.count_values(five))


def test_more_items_narrow_it_with_their_square_root() -> None:
    narrow, wide = (drawn({Fraction(0): 40 * n, Fraction(1): 60 * n}) for n in (4, 1))
    assert narrow.high - narrow.low == pytest.approx((wide.high - wide.low) / 2, rel=0.1)


def test_items_that_are_all_alike_leave_no_width() -> None:
    found = drawn({Fraction(1): 5})
    assert (found.low, found.value, found.high) == (1, 1, 1)


def test_of_nothing_there_is_no_interval() -> None:
    assert bootstrap([]) is None
    assert bootstrap([{}, {}]) is None
    assert drawn({}, {Fraction(1, 2): 3}).value == 0.5


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_in_per_cent_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="`confidence`"):
        bootstrap([{Fraction(1): 1}], confidence)


def test_a_hundred_thousand_items_take_no_more_memory_than_a_hundred() -> None:
    values = {Fraction(value, 5): 100_000 // 6 for value in range(6)}
    drawn(values)  # imports numpy
    tracemalloc.start()
    try:
        found = drawn(values)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert found.high - found.low < 0.005


def test_all_resamples_are_drawn() -> None:
    assert RESAMPLES % RESAMPLES_AT_ONCE == 0
