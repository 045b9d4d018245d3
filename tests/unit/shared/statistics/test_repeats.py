"""The spread between repeats, and what must be said of it."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.statistics.intervals import CLUSTERED, DETERMINISTIC, SHARED, explain_repeats, measure_spread

COUNTS = st.lists(st.integers(1, 50).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2)


@given(COUNTS)
def test_it_is_the_sample_deviation_of_the_repeats_accuracies(counts: list[tuple[int, int]]) -> None:
    found = measure_spread(counts)
    accuracies = [right / graded for right, graded in counts]
    assert found.accuracies == tuple(accuracies)
    assert found.mean == pytest.approx(np.mean(accuracies))
    assert found.std == pytest.approx(np.std(accuracies, ddof=1), abs=1e-12)


def test_one_repeat_has_no_spread() -> None:
    assert (measure_spread([(3, 4)]).mean, measure_spread([(3, 4)]).std) == (0.75, None)


def test_a_repeat_without_a_verdict_keeps_its_place_and_counts_for_nothing() -> None:
    found = measure_spread([(1, 4), (0, 0), (3, 4)])
    assert found.accuracies == (0.25, None, 0.75)
    assert (found.mean, found.std) == (0.5, statistics.stdev([0.25, 0.75]))
    assert measure_spread([(0, 0)]).mean is None
    assert measure_spread([]).accuracies == ()


@pytest.mark.parametrize(
    ("greedy", "shared", "said"),
    [(True, True, SHARED), (True, False, DETERMINISTIC), (False, True, CLUSTERED), (False, False, CLUSTERED)],
)
def test_a_deviation_of_zero_by_construction_is_said_to_be_that(greedy: bool, shared: bool, said: str) -> None:
    assert explain_repeats(greedy=greedy, shared=shared) == said
    assert ("0 by construction" in said) == greedy


def test_greedy_answers_vary_only_with_a_judge_that_is_asked_anew() -> None:
    assert "the judge model, asked anew in each" in explain_repeats(greedy=True, shared=True, judged=True)
    assert explain_repeats(greedy=False, shared=True, judged=True) == CLUSTERED
