"""How many items would be needed: held against statsmodels, and simulated with the test that would be made."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.intervals import Values
from shared.statistics.significance import compute_p, estimate_needed_items


def differing(gained: int, lost: int, same: int) -> Values:
    return {Fraction(1): gained, Fraction(-1): lost, Fraction(0): same}


@pytest.mark.parametrize(
    "values",
    [
        differing(27, 23, 450),
        differing(55, 40, 405),
        {Fraction(k, 5): count for k, count in ((-2, 20), (-1, 60), (0, 300), (1, 80), (3, 20))},
    ],
)
def test_it_is_that_of_a_paired_test_on_the_same_effect(values: Values) -> None:
    from statsmodels.stats.power import TTestPower  # 65 MiB with pandas

    items = np.array([float(value) for value, count in values.items() for _ in range(count)])
    theirs = TTestPower().solve_power(effect_size=abs(items.mean()) / items.std(), power=0.8, alpha=0.05)
    assert estimate_needed_items(values) == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize(("gained", "lost", "same"), [(10, 4, 86), (12, 3, 85), (6, 1, 93)])
def test_with_so_many_items_four_of_five_studies_find_it(gained: int, lost: int, same: int) -> None:
    values = differing(gained, lost, same)
    count = estimate_needed_items(values)
    assert count is not None
    draws = np.random.default_rng(0).multinomial(count, np.array([gained, lost, same]) / 100, 2000)
    often = Counter((int(more), int(less)) for more, less, _ in draws)
    found = sum(n for (more, less), n in often.items() if compute_p({Fraction(1): more, Fraction(-1): less}) < 0.05)
    assert 0.74 < found / 2000 < 0.83  # the exact test is a little shy


def test_of_repeats_four_of_five_studies_find_it_as_well() -> None:
    values = {Fraction(k, 5): count for k, count in ((-2, 5), (-1, 15), (0, 45), (1, 20), (2, 15))}
    count = estimate_needed_items(values)
    assert count is not None
    draws = np.random.default_rng(1).multinomial(count, np.array(list(values.values())) / 100, 200)
    found = sum(compute_p(dict(zip(values, map(int, drawn), strict=True))) < 0.05 for drawn in draws)
    assert 0.7 < found / 200 < 0.89


def test_connors_example_by_hand() -> None:
    assert estimate_needed_items(differing(7, 3, 90)) == 489


def test_more_power_or_a_stricter_level_needs_more_items() -> None:
    values = differing(7, 3, 90)
    usual, sure, strict = (
        estimate_needed_items(values),
        estimate_needed_items(values, power=0.95),
        estimate_needed_items(values, level=0.01),
    )
    clear = estimate_needed_items(differing(9, 1, 90))
    assert usual is not None
    assert sure is not None
    assert strict is not None
    assert clear is not None
    assert clear < usual < min(sure, strict)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_it_does_not_depend_on_how_many_were_asked_or_which_side_is_left(gained: int, lost: int, same: int) -> None:
    values = differing(gained, lost, same)
    assert (
        estimate_needed_items(values)
        == estimate_needed_items(differing(lost, gained, same))
        == estimate_needed_items(differing(3 * gained, 3 * lost, 3 * same))
    )
    assert (estimate_needed_items(values) is None) == (gained == lost)


@pytest.mark.parametrize(("power", "level"), [(1, 0.05), (0, 0.05), (0.8, 0), (80, 0.05), (0.8, 5)])
def test_impossible_wishes_are_refused(power: float, level: float) -> None:
    with pytest.raises(ValueError, match="`power` and `level`"):
        estimate_needed_items(differing(7, 3, 90), power, level)
