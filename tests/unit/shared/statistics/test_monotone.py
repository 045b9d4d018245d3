"""Means that are made to grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.intervals import fit_monotone

MEANS = st.lists(st.tuples(st.floats(1, 5), st.integers(1, 50)), min_size=1, max_size=6)


def test_what_grows_already_stays() -> None:
    assert fit_monotone([1, 2.5, 2.5, 4, 5], [3, 1, 1, 1, 1]) == (1, 2.5, 2.5, 4, 5)


def test_neighbours_that_fall_are_pooled_by_their_weights() -> None:
    assert fit_monotone([1, 4, 1, 5], [1, 1, 2, 1]) == (1, 2, 2, 5)


def test_where_nothing_was_seen_the_line_between_its_neighbours_counts() -> None:
    assert fit_monotone([None, 2, None, 4, None], [0, 1, 0, 1, 0]) == (2, 2, 3, 4, 4)


@given(observed=MEANS)
def test_it_never_falls_and_keeps_the_mean(observed: list[tuple[float, int]]) -> None:
    means, weights = [mean for mean, _ in observed], [weight for _, weight in observed]
    fitted = fit_monotone(means, weights)
    assert list(fitted) == sorted(fitted)
    before, after = (
        sum(each * weight for each, weight in zip(values, weights, strict=True)) for values in (means, fitted)
    )
    assert after == pytest.approx(before, abs=1e-3)


def test_of_nothing_there_is_nothing() -> None:
    with pytest.raises(ValueError, match="nothing was observed"):
        fit_monotone([None, None], [0, 0])
