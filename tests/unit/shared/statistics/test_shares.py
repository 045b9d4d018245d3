"""The share of right answers over items, with its interval."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.intervals import bootstrap, count_values, estimate_share, wilson

ITEMS = st.lists(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=60)


def test_an_item_counts_once_however_often_it_was_answered() -> None:
    found = estimate_share(count_values({(5, 5): 10, (0, 1): 30}))
    assert found == wilson(10, 40)
    assert (found.value, round(found.low, 3), round(found.high, 3)) == (0.25, 0.142, 0.402)


@given(ITEMS)
def test_the_share_lies_in_its_intervals(items: list[tuple[int, int]]) -> None:
    values = count_values(Counter(items))
    found, resampled = estimate_share(values), bootstrap([values])
    mean = sum(Fraction(right, answers) for right, answers in items) / len(items)
    assert resampled is not None
    assert found.value == resampled.value == float(mean)
    for interval in (found, resampled):
        assert interval.low - 1e-12 <= float(mean) <= interval.high + 1e-12


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.lists(st.integers(0, n), min_size=1, max_size=60), st.just(n))))
def test_with_equal_repeats_it_is_the_share_of_all_answers(job: tuple[list[int], int]) -> None:
    rights, repeats = job
    found = estimate_share(count_values(Counter((right, repeats) for right in rights)))
    assert found.value == sum(rights) / (repeats * len(rights))


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 2), (0, 7), (7, 7), (86, 100), (499, 500)])
def test_with_one_answer_an_item_it_is_wilsons(right: int, n: int) -> None:
    assert estimate_share(count_values(Counter({(1, 1): right, (0, 1): n - right}))) == wilson(right, n)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 1000, 20_000])
@pytest.mark.parametrize("right", [Fraction(1, 2), Fraction(1), Fraction(3, 2)])
def test_half_an_item_of_rounding_stays_inside_near_both_ends(n: int, right: Fraction) -> None:
    for share in (right / n, 1 - right / n):
        if 0 <= share <= 1:
            found = estimate_share({share: n})
            assert found.low <= share <= found.high


def test_without_items_nothing_is_known() -> None:
    assert estimate_share({}) == wilson(0, 0)
