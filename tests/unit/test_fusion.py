"""Reciprocal rank fusion."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.rag.fusion import best_ranks, rrf

LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=10), max_size=4)


def test_first_and_second_make_0_0325225() -> None:
    """1/61 + 1/62, the figure that other implementations give."""
    assert dict(rrf([["d1", "d2"], ["d2", "d1"]])) == {"d1": pytest.approx(0.0325225, abs=5e-8), "d2": 1 / 61 + 1 / 62}


def test_swapped_ranks_tie_and_the_hash_decides() -> None:
    """Two documents that change places score exactly alike."""
    fused = rrf([["b", "a"], ["a", "b"]])
    assert [document for document, _ in fused] == ["a", "b"]
    assert fused[0][1] == fused[1][1]


def test_ranks_count_from_one() -> None:
    """k = 60 and rank 1: 1/61, not 1/60."""
    assert rrf([["a"]]) == [("a", 1 / 61)]


def test_a_document_in_one_list_keeps_its_single_term() -> None:
    """Absence adds nothing, neither good nor bad."""
    fused = dict(rrf([["a", "b"], ["a"]]))
    assert fused == {"a": pytest.approx(2 / 61), "b": 1 / 62}


def test_a_repeated_document_counts_once_at_its_best_rank() -> None:
    """A list cannot vote twice for one document, and those after it keep their places."""
    assert dict(rrf([["a", "a", "b"]])) == {"a": 1 / 61, "b": 1 / 63}
    assert best_ranks(["a", "b", "a"]) == {"a": 1, "b": 2}


def test_nothing_fuses_to_nothing() -> None:
    """Empty lists, or none, are not an error."""
    assert rrf([]) == []
    assert rrf([[], []]) == []


def test_a_small_k_weighs_the_top_more() -> None:
    """With k = 0 the first rank is worth 1."""
    assert rrf([["a", "b"]], k=0) == [("a", 1.0), ("b", 0.5)]


def test_a_negative_k_is_refused() -> None:
    """k = -1 would divide by zero at rank 1."""
    with pytest.raises(ValueError, match="`k` must not be negative, not -1"):
        rrf([["a"]], k=-1)


@settings(deadline=None)
@given(LISTS, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_changes_nothing(lists: list[list[str]], random: Random) -> None:
    """Scores are exact sums: shuffled lists give the same bits and the same order."""
    shuffled = list(lists)
    random.shuffle(shuffled)
    assert rrf(shuffled) == rrf(lists)


@settings(deadline=None)
@given(LISTS)
def test_every_document_comes_out_once_by_falling_score(lists: list[list[str]]) -> None:
    """Fusion loses nothing, repeats nothing, and sorts."""
    fused = rrf(lists)
    assert sorted(document for document, _ in fused) == sorted({document for ranked in lists for document in ranked})
    assert fused == sorted(fused, key=lambda entry: (-entry[1], entry[0]))


@settings(deadline=None)
@given(LISTS)
def test_scores_follow_the_formula(lists: list[list[str]]) -> None:
    """Written once more, the slow way."""
    for document, score in rrf(lists):
        expected = sum(1 / (60 + ranked.index(document) + 1) for ranked in lists if document in ranked)
        assert score == pytest.approx(expected, rel=1e-12)
