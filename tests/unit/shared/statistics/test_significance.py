"""Means and differences with their certainty, checked against scipy and by hand."""

import numpy as np
import pytest
from scipy import stats

from shared.statistics.significance import Difference, adjust_holm, compare_paired, correct_family, estimate_mean

LEFT = np.random.default_rng(0).beta(4, 4, 80).tolist()
RIGHT = (np.asarray(LEFT) - np.random.default_rng(1).normal(0.025, 0.08, 80)).clip(0, 1).tolist()


def compared(left: list[float], right: list[float]) -> Difference:
    found = compare_paired(left, right)
    assert found is not None
    return found


def test_a_difference_is_scipys_paired_t_test() -> None:
    found, student = compared(LEFT, RIGHT), stats.ttest_rel(LEFT, RIGHT)
    bounds = student.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((student.pvalue, bounds.low, bounds.high))
    assert found.value == pytest.approx(np.mean(LEFT) - np.mean(RIGHT))
    assert found.effect == pytest.approx(student.statistic / np.sqrt(80))


def test_randomisation_finds_the_same() -> None:
    differences = np.asarray(LEFT) - RIGHT
    drawn = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=0)
    assert compared(LEFT, RIGHT).p == pytest.approx(drawn.pvalue, abs=0.01)


def test_the_sides_may_be_exchanged() -> None:
    one, other = compared(LEFT, RIGHT), compared(RIGHT, LEFT)
    assert other.high is not None
    assert (one.value, one.low, one.p) == pytest.approx((-other.value, -other.high, other.p))


def test_equal_systems_do_not_differ() -> None:
    found = compared(LEFT, LEFT)
    assert (found.value, found.p, found.separable) == (0, 1, False)
    assert (found.low, found.high, found.effect) == (None, None, None)


def theirs(differences: list[float]) -> float:
    found = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    return float(found.pvalue)


@pytest.mark.parametrize("n", range(2, 11))
def test_equal_differences_are_as_certain_as_so_many_tosses_of_a_coin(n: int) -> None:
    found = compared([1.0] * n, [0.0] * n)
    assert found.p == pytest.approx(2 / 2**n) == theirs([1.0] * n)
    assert (found.value, found.low, found.high, found.effect) == (1, None, None, None)
    assert found.separable == (n >= 6)


def test_differences_that_are_equal_but_for_rounding_are_equal() -> None:
    found = compared([0.3, 0.4, 0.9], [0.2, 0.3, 0.8])
    assert (found.p, found.low, found.effect) == (0.25, None, None)


@pytest.mark.parametrize(
    "differences",
    [
        [0.1, 0.2], [0.5, 0.5, 0.5001], [1.0, 1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.25], [0.3, -0.2, 0.1, 0.1, 0.0],
        [1.0] * 5 + [0.0] * 95, np.random.default_rng(2).normal(0.2, 0.3, 12).tolist(),
    ],
)  # fmt: skip
def test_where_few_questions_differ_all_signs_are_tried(differences: list[float]) -> None:
    some = [each for each in differences if each]
    zeros = [0.0] * len(differences)
    assert compared(differences, zeros).p == pytest.approx(1.0 if len(some) == 1 else theirs(some))


def test_one_size_of_difference_is_the_sign_test_however_many_questions() -> None:
    found = compared([1.0] * 40 + [0.0] * 60, [0.0] * 40 + [1.0] * 20 + [0.0] * 40)
    assert found.p == pytest.approx(stats.binomtest(40, 60).pvalue)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_questions_are_no_test(n: int) -> None:
    assert compare_paired([1.0] * n, [0.0] * n) is None


def test_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        compare_paired([1.0, 0.5], [1.0])


def test_a_mean_has_students_interval_inside_0_and_1() -> None:
    low, high = stats.t.interval(0.95, 79, np.mean(LEFT), stats.sem(LEFT))
    found = estimate_mean(LEFT)
    assert (found.value, found.low, found.high, found.n) == pytest.approx((np.mean(LEFT), low, high, 80))
    assert (estimate_mean([0.0, 1.0]).low, estimate_mean([0.0, 1.0]).high) == (0, 1)


def test_a_mean_of_one_value_has_no_interval() -> None:
    assert (estimate_mean([0.5]).value, estimate_mean([0.5]).low) == (0.5, None)
    assert (estimate_mean([]).value, estimate_mean([]).n) == (None, 0)


def test_equal_values_have_a_mean_and_no_interval() -> None:
    found = estimate_mean([1.0, 1.0, 1.0])
    assert (found.value, found.low, found.high, found.n) == (1, None, None, 3)


def test_holms_correction() -> None:
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([0.9, 0.8]) == [1, 1]
    assert adjust_holm([]) == []


def test_what_is_separable_alone_may_not_be_among_others() -> None:
    alone = compared(LEFT, RIGHT)
    assert alone.p < 0.05
    assert alone.separable
    many = correct_family([alone, None, *([compared(LEFT, LEFT)] * 50)])
    assert many[1] is None
    assert many[0] is not None
    assert many[0].adjusted == pytest.approx(min(1, 51 * alone.p))
    assert not many[0].separable
