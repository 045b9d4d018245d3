"""Scores of different lists made comparable."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.fusion import NORMALISERS, Normaliser, logistic, min_max, rank, sigmoid, z_score

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)
EVERY = pytest.mark.parametrize("normaliser", NORMALISERS.values(), ids=NORMALISERS)
BM25 = [100.0, 20.0, 15.0, 10.0, 5.0]
"""The list of seed document 003, section on normalisation."""


def test_min_max_of_the_source_documents_list() -> None:
    assert min_max(BM25).found == pytest.approx([1, 0.158, 0.105, 0.053, 0], abs=5e-4)


def test_sigmoid_of_the_source_documents_list() -> None:
    assert sigmoid(BM25, center=30).found == pytest.approx([0.879, 0.430, 0.395, 0.362, 0.330], abs=5e-4)


def test_a_sigmoid_without_a_center_is_about_the_mean() -> None:
    assert sigmoid(BM25) == sigmoid(BM25, center=30)
    assert sigmoid([-7, -8, -9]).found[1] == 0.5


def test_logits_of_the_source_documents_reranker() -> None:
    assert [logistic(logit) for logit in (8.5, 2.1, -0.5, -2.3)] == pytest.approx(
        [0.9998, 0.8909, 0.3775, 0.0911], abs=5e-5
    )


@pytest.mark.parametrize("logit", [-1e308, -800.0, 800.0, 1e308])
def test_no_logit_is_too_large(logit: float) -> None:
    assert logistic(logit) == (logit > 0)


def test_z_scores_have_mean_zero_and_deviation_one() -> None:
    assert z_score([1, 3]).found == [-1, 1]


def test_ranks_are_shared_by_equal_scores() -> None:
    assert rank([9, 9, 5, 1]) == ([1, 1, 0.5, 0.25], 0)


@EVERY
def test_a_constant_list_puts_all_that_it_holds_before_all_that_it_misses(normaliser: Normaliser) -> None:
    best, worst = normaliser([2, 1]).found
    found, missing = normaliser([3, 3, 3])
    assert found == [best] * 3
    assert missing <= worst
    assert missing == normaliser([3]).missing


def test_a_missing_document_never_gets_the_mean() -> None:
    assert z_score([10, 2, 1]).missing == min(z_score([10, 2, 1]).found) < 0
    assert sigmoid([10, 2, 1]).missing < 0.5


def test_a_missing_document_gets_the_next_rank() -> None:
    assert rank([4, 3, 2, 1]).missing == 0


@EVERY
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_refused(normaliser: Normaliser, bad: float) -> None:
    with pytest.raises(ValueError, match="`score` must be a finite number, not"):
        normaliser([1, bad, 2])


@EVERY
def test_an_empty_list_stays_empty(normaliser: Normaliser) -> None:
    assert normaliser([]).found == []


@EVERY
@given(SCORES)
def test_no_document_passes_one_with_a_better_score(normaliser: Normaliser, scores: Sequence[float]) -> None:
    found, missing = normaliser(scores)
    pairs = sorted(zip(scores, found, strict=True))
    for (score, value), (next_score, next_value) in pairwise(pairs):
        assert value <= next_value if score < next_score else value == next_value
    assert all(value >= missing for value in found)


@EVERY
@given(st.lists(st.integers(-1000, 1000), min_size=1), st.integers(1, 50), st.integers(-100, 100))
def test_the_scale_of_a_list_says_nothing(normaliser: Normaliser, scores: list[int], scale: int, shift: int) -> None:
    moved, missing = normaliser([scale * score + shift for score in scores])
    expected = normaliser(scores)
    assert [*moved, missing] == pytest.approx([*expected.found, expected.missing])


@pytest.mark.parametrize("normaliser", [min_max, sigmoid, rank])
@given(SCORES)
def test_bounded_normalisers_stay_between_0_and_1(normaliser: Normaliser, scores: Sequence[float]) -> None:
    found, missing = normaliser(scores)
    assert all(0 <= value <= 1 for value in [*found, missing])
