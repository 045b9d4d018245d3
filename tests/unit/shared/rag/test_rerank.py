"""Reranking by quality and a little relevance."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.fusion import rerank

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
