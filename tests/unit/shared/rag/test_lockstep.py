import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Estimate
from shared.rag.fusion import (
    NORMALISERS,
    Normaliser,
    Part,
    interleave,
    keep_first_of_each,
    logistic,
    min_max,
    rank,
    rerank,
    run_in_step,
    sigmoid,
    z_score,
)
from tests.unit.shared.pipelines.test_pipelines import drive

# Parts of a pipeline that wait side by side.


def part(name: str, rounds: int, each: int = 1) -> Part[list[str]]:
    replies: list[str] = []
    for number in range(rounds):
        replies += yield [Estimate(question=f"{name}{number}{call}") for call in range(each)]
    return replies


def test_what_parts_wait_for_is_asked_together_and_each_gets_its_own_replies() -> None:
    parts = [part("a", 1), part("b", 0), part("c", 2, each=2)]
    results, asked = drive(run_in_step(parts), lambda call: call.question)  # type: ignore[union-attr,arg-type,return-value]
    assert results == [["a00"], [], ["c00", "c01", "c10", "c11"]]
    assert [[call.question for call in step] for step in asked] == [["a00", "c00", "c01"], ["c10", "c11"]]  # type: ignore[union-attr]


def test_no_parts_wait_for_nothing() -> None:
    with pytest.raises(StopIteration) as ended:
        next(run_in_step([]))
    assert ended.value.value == []


def test_lists_are_merged_by_turns() -> None:
    merged = list(interleave(["ab", "", "cde"]))  # type: ignore[list-item]
    assert merged == ["a", "c", "b", "d", "e"]
    assert keep_first_of_each(["bb", "a", "b"], len) == ["bb", "a"]


# Scores of different lists made comparable.

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
def test_scores_that_are_no_numbers_are_not_normalised(normaliser: Normaliser, bad: float) -> None:
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


# Reranking by quality and a little relevance.

FUSED = [("a", 0.04), ("b", 0.03), ("c", 0.02)]
SHARES = st.floats(0, 1)
CANDIDATES = st.dictionaries(st.sampled_from("abcdefghij"), st.tuples(SHARES, st.none() | SHARES), max_size=10)


def order(fused: Sequence[tuple[str, float]], quality: Mapping[str, float | None], **weights: float) -> list[str]:
    return [entry.document for entry in rerank(fused, quality, **weights)]


def test_score_is_a_tenth_relevance_and_nine_tenths_quality() -> None:
    entries = rerank(FUSED, {"a": 0.0, "b": 0.5, "c": 1.0})
    assert [(entry.document, entry.score) for entry in entries] == [
        ("c", pytest.approx(0.9)),
        ("b", pytest.approx(0.05 + 0.45)),
        ("a", pytest.approx(0.1)),
    ]


def test_ranks_count_from_one_in_the_final_order() -> None:
    first = rerank(FUSED, {"a": 0.0, "b": 0.5, "c": 1.0})[0]
    assert (first.rank, first.document, first.fused, first.quality) == (1, "c", 0.02, 1.0)
    assert [entry.rank for entry in rerank(FUSED, {})] == [1, 2, 3]


def test_equal_quality_leaves_the_fused_order() -> None:
    assert order(FUSED, dict.fromkeys("abc", 0.75)) == ["a", "b", "c"]


def test_documents_without_a_quality_come_last_in_fused_order() -> None:
    entries = rerank(FUSED, {"a": None, "c": 0.0})
    assert [entry.document for entry in entries] == ["c", "a", "b"]
    assert [entry.score for entry in entries] == [0.0, None, None]


def test_without_any_quality_the_fused_order_stays() -> None:
    assert order([("c", 0.04), ("a", 0.03), ("b", 0.02)], {}) == ["c", "a", "b"]


def test_normalisation_covers_documents_without_a_quality_too() -> None:
    entries = rerank(FUSED, {"b": 0.0})
    assert entries[0].score == pytest.approx(0.1 * 0.5)


def test_ties_are_broken_by_hash() -> None:
    assert order([("b", 0.1), ("a", 0.1)], {"a": 0.5, "b": 0.5}) == ["a", "b"]
    assert order([("b", 0.1), ("a", 0.1)], {}) == ["a", "b"]


def test_weights_can_be_turned_around() -> None:
    assert order(FUSED, {"a": 0.0, "b": 0.5, "c": 1.0}, rrf_weight=1.0, quality_weight=0.0) == ["a", "b", "c"]


def test_constant_rrf_becomes_one_for_all() -> None:
    assert rerank([("a", 0.3), ("b", 0.3)], {"a": 0.0, "b": 0.0})[1].score == pytest.approx(0.1)
    assert rerank([("a", 0.3)], {"a": 1.0})[0].score == pytest.approx(1.0)


def test_nothing_to_rank_is_fine() -> None:
    assert rerank([], {}) == []


@given(CANDIDATES)
def test_reranking_keeps_every_candidate_once(candidates: dict[str, tuple[float, float | None]]) -> None:
    entries = rerank(
        [(document, fused) for document, (fused, _) in candidates.items()],
        {document: quality for document, (_, quality) in candidates.items()},
    )
    scores = [entry.score for entry in entries]
    known = [score for score in scores if score is not None]
    assert sorted(entry.document for entry in entries) == sorted(candidates)
    assert scores[: len(known)] == sorted(known, reverse=True)


@given(CANDIDATES, SHARES)
def test_a_better_quality_never_lowers_a_document(
    candidates: dict[str, tuple[float, float | None]], better: float
) -> None:
    fused = [(document, score) for document, (score, _) in candidates.items()]
    quality = {document: rating for document, (_, rating) in candidates.items()}
    for document, rating in quality.items():
        raised = {**quality, document: max(better, rating or 0.0)}
        assert order(fused, raised).index(document) <= order(fused, quality).index(document)
