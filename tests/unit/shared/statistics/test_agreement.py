"""Cohen's weighted kappa; statsmodels, another implementation, agrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa

from shared.statistics.agreement import weighted_kappa

TABLES = st.lists(st.lists(st.integers(0, 30), min_size=5, max_size=5), min_size=5, max_size=5)


@given(table=TABLES)
def test_statsmodels_finds_the_same(table: list[list[int]]) -> None:
    """On any table in which chance leaves room for disagreement."""
    kappa = weighted_kappa(table)
    if kappa is None:
        assert sum(map(any, table)) <= 1 or sum(map(any, zip(*table, strict=True))) <= 1
        return
    oracle = cohens_kappa(np.array(table), weights=np.arange(5), wt="quadratic", return_results=False)
    assert kappa == pytest.approx(oracle, abs=1e-9)


def test_perfect_agreement_is_one_and_independence_is_zero() -> None:
    """By hand: a diagonal, and a product of its margins."""
    assert weighted_kappa([[3, 0], [0, 4]]) == 1
    assert weighted_kappa([[1, 2], [2, 4]]) == 0
    assert weighted_kappa([[0, 5], [5, 0]]) == -1


def test_far_apart_counts_more_than_next_to_each_other() -> None:
    """Quadratic weights: twice the distance is four times the disagreement."""
    near = weighted_kappa([[4, 1, 0], [0, 4, 0], [0, 0, 4]])
    far = weighted_kappa([[4, 0, 1], [0, 4, 0], [0, 0, 4]])
    assert near is not None
    assert far is not None
    assert near > far


@pytest.mark.parametrize("table", [[[0, 0], [0, 0]], [[7, 0], [0, 0]]])
def test_without_anything_to_disagree_about_there_is_no_kappa(table: list[list[int]]) -> None:
    """Not 1: a judge that always says the same tells nothing apart."""
    assert weighted_kappa(table) is None
