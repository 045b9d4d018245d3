"""Kappa and alpha: published examples, and statsmodels, another implementation, which agrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.agreement import (
    Level,
    compute_weighted_kappa,
    estimate_cohens_kappa,
    estimate_krippendorffs_alpha,
)

TABLES = st.lists(st.lists(st.integers(0, 30), min_size=5, max_size=5), min_size=5, max_size=5)
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
"""Krippendorff (2011), section C: four observers, twelve units, five values, some missing."""


def units(*observers: str) -> list[list[int]]:
    return [[int(each) - 1 for each in unit if each != "."] for unit in zip(*observers, strict=True)]


@given(table=TABLES)
def test_statsmodels_finds_the_same(table: list[list[int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    kappa = compute_weighted_kappa(table)
    if kappa is None:
        assert sum(map(any, table)) <= 1 or sum(map(any, zip(*table, strict=True))) <= 1
        return
    oracle = inter_rater.cohens_kappa(np.array(table), weights=np.arange(5), wt="quadratic", return_results=False)
    assert kappa == pytest.approx(oracle, abs=1e-9)


def test_perfect_agreement_is_one_and_independence_is_zero() -> None:
    assert compute_weighted_kappa([[3, 0], [0, 4]]) == 1
    assert compute_weighted_kappa([[1, 2], [2, 4]]) == 0
    assert compute_weighted_kappa([[0, 5], [5, 0]]) == -1


def test_far_apart_counts_more_than_next_to_each_other() -> None:
    near = compute_weighted_kappa([[4, 1, 0], [0, 4, 0], [0, 0, 4]])
    far = compute_weighted_kappa([[4, 0, 1], [0, 4, 0], [0, 0, 4]])
    assert near is not None
    assert far is not None
    assert near > far


@pytest.mark.parametrize("table", [[[0, 0], [0, 0]], [[7, 0], [0, 0]]])
def test_without_anything_to_disagree_about_there_is_no_kappa(table: list[list[int]]) -> None:
    assert compute_weighted_kappa(table) is None


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorffs_example_has_the_published_alphas(level: Level, published: float) -> None:
    found = estimate_krippendorffs_alpha(units(*OBSERVERS), 5, level)
    assert found.value == pytest.approx(published, abs=0.0005)
    assert found.low is not None
    assert found.high is not None
    assert found.low < published < found.high


def test_the_textbook_example_of_kappa() -> None:
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert estimate_cohens_kappa(pairs, 2, "nominal").value == pytest.approx(0.4)


@given(pairs=PAIRS)
def test_statsmodels_finds_the_same_unweighted_kappa(pairs: list[tuple[int, int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    found = estimate_cohens_kappa(pairs, 3, "nominal").value
    if found is None:
        assert len(set(pairs)) == 1
        return
    table = np.zeros((3, 3))
    for pair in pairs:
        table[pair] += 1
    assert found == pytest.approx(inter_rater.cohens_kappa(table, return_results=False), abs=1e-9)


@given(rated=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=20))
def test_alpha_of_complete_nominal_data_follows_from_fleiss_kappa(rated: list[list[int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    found = estimate_krippendorffs_alpha(rated, 4, "nominal").value
    if found is None:
        assert len({each for unit in rated for each in unit}) == 1
        return
    kappa = inter_rater.fleiss_kappa(np.array([np.bincount(unit, minlength=4) for unit in rated]))
    n = 3 * len(rated)
    assert found == pytest.approx(1 - (1 - kappa) * (n - 1) / n, abs=1e-9)


@pytest.mark.slow
def test_an_interval_is_that_of_units_drawn_one_by_one() -> None:
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 5, 120)
    rated = [[int(each), int(np.clip(each + rng.integers(-1, 2), 0, 4))] for each in truth]
    found = estimate_krippendorffs_alpha(rated, 5, "interval", seed=3)
    drawn = [
        estimate_krippendorffs_alpha([rated[i] for i in rng.integers(0, 120, 120)], 5, "interval").value or 0
        for _ in range(300)
    ]
    assert found.low == pytest.approx(np.quantile(drawn, 0.025), abs=0.01)
    assert found.high == pytest.approx(np.quantile(drawn, 0.975), abs=0.01)


def test_the_seed_makes_the_interval() -> None:
    first, again, other = (estimate_krippendorffs_alpha(units(*OBSERVERS), 5, "interval", seed) for seed in (1, 1, 2))
    assert first == again
    assert first.value == other.value
    assert (first.low, first.high) != (other.low, other.high)


@pytest.mark.parametrize("rated", [[], [[2]], [[1], [3]], [[4, 4], [4, 4]]])
def test_without_two_ratings_or_a_difference_there_is_no_alpha(rated: list[list[int]]) -> None:
    assert estimate_krippendorffs_alpha(rated, 5, "ordinal").value is None


def test_where_most_resamples_agree_by_chance_alone_there_is_no_interval() -> None:
    found = estimate_cohens_kappa([(0, 0)] * 5 + [(1, 1)], 2, "nominal")
    assert (found.value, found.low, found.high) == (1, None, None)
