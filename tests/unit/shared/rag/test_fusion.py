"""Fusion by reciprocal ranks and by normalised scores; ranx, another implementation, agrees."""

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.params import FusionParams
from shared.rag.fusion import NORMALISERS, Ranked, find_best_ranks, fuse, rrf, sigmoid, weighted_sum, z_score
from tests.unit import fusion_oracle
from tests.unit.cases import named

DENSE = [("a", 0.9), ("b", 0.6), ("c", 0.5)]
SPARSE = [("c", 30.0), ("d", 20.0)]
ORACLE = fusion_oracle.recorded()
LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=10), max_size=4)


def test_first_and_second_make_0_0325225() -> None:
    assert dict(rrf([["d1", "d2"], ["d2", "d1"]])) == {"d1": pytest.approx(0.0325225, abs=5e-8), "d2": 1 / 61 + 1 / 62}


def test_swapped_ranks_tie_and_the_hash_decides() -> None:
    fused = rrf([["b", "a"], ["a", "b"]])
    assert [document for document, _ in fused] == ["a", "b"]
    assert fused[0][1] == fused[1][1]


def test_ranks_count_from_one() -> None:
    assert rrf([["a"]]) == [("a", 1 / 61)]


def test_a_document_in_one_list_keeps_its_single_term() -> None:
    fused = dict(rrf([["a", "b"], ["a"]]))
    assert fused == {"a": pytest.approx(2 / 61), "b": 1 / 62}


def test_a_repeated_document_counts_once_at_its_best_rank() -> None:
    assert dict(rrf([["a", "a", "b"]])) == {"a": 1 / 61, "b": 1 / 63}
    assert find_best_ranks(["a", "b", "a"]) == {"a": 1, "b": 2}


def test_nothing_fuses_to_nothing() -> None:
    assert rrf([]) == []
    assert rrf([[], []]) == []


def test_a_small_k_weighs_the_top_more() -> None:
    assert rrf([["a", "b"]], k=0) == [("a", 1.0), ("b", 0.5)]


def test_a_negative_k_is_refused() -> None:
    with pytest.raises(ValueError, match="`k` must not be negative, not -1"):
        rrf([["a"]], k=-1)


@given(LISTS, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_changes_nothing(lists: list[list[str]], random: Random) -> None:
    shuffled = list(lists)
    random.shuffle(shuffled)
    assert rrf(shuffled) == rrf(lists)


@given(LISTS)
def test_every_document_comes_out_once_by_falling_score(lists: list[list[str]]) -> None:
    fused = rrf(lists)
    assert sorted(document for document, _ in fused) == sorted({document for ranked in lists for document in ranked})
    assert fused == sorted(fused, key=lambda entry: (-entry[1], entry[0]))


@given(LISTS)
def test_scores_follow_the_formula(lists: list[list[str]]) -> None:
    for document, score in rrf(lists):
        expected = sum(1 / (60 + ranked.index(document) + 1) for ranked in lists if document in ranked)
        assert score == pytest.approx(expected, rel=1e-12)


def test_equal_weights_are_plain_fusion_to_the_last_bit() -> None:
    lists = [["d1", "d2"], ["d2", "d1"], ["d3"]]
    assert rrf(lists, weights=[0.1, 0.1, 0.1]) == rrf(lists, weights=[7, 7, 7]) == rrf(lists)
    default = FusionParams()
    assert fuse([DENSE, SPARSE], (default.dense, default.sparse), default, 60) == rrf([["a", "b", "c"], ["c", "d"]])


def test_the_heaviest_list_counts_fully_and_others_in_proportion() -> None:
    fused = dict(rrf([["a"], ["b"]], weights=[0.7, 0.3]))
    assert fused == {"a": 1 / 61, "b": pytest.approx(3 / 7 / 61)}


@pytest.mark.parametrize("method", ["rrf", "weighted"])
def test_a_list_without_weight_is_as_if_it_were_not_there(method: Any) -> None:
    params = FusionParams(method=method)
    assert fuse([DENSE, SPARSE], (1, 0), params, 60) == fuse([DENSE], (1,), params, 60)


def test_the_weighted_sum_of_normalised_scores() -> None:
    assert weighted_sum([DENSE, SPARSE], [0.7, 0.3]) == [
        ("a", pytest.approx(0.7)),
        ("c", pytest.approx(0.3)),
        ("b", pytest.approx(0.175)),
        ("d", pytest.approx(0)),
    ]


def test_a_document_that_words_missed_gets_no_half() -> None:
    fused = dict(weighted_sum([[("a", 3.0), ("b", 2.0), ("c", 1.0)], [("d", 5.0)]], [1, 1], sigmoid))
    missing = sigmoid([5.0]).missing
    assert fused["b"] == pytest.approx(0.5 + missing)
    assert missing < 0.5


def test_a_missing_document_is_not_average() -> None:
    fused = dict(weighted_sum([DENSE, [("c", 1.0), ("d", 1.0)]], [1, 1], z_score))
    assert fused["c"] == fused["d"]


def test_an_empty_list_changes_nothing() -> None:
    for normaliser in NORMALISERS.values():
        assert weighted_sum([DENSE, []], [1, 1], normaliser) == weighted_sum([DENSE], [1], normaliser)


def test_a_repeated_document_has_its_first_score() -> None:
    assert weighted_sum([[("a", 2.0), ("b", 1.0), ("a", 0.0)]], [1]) == [("a", 1), ("b", 0)]


def test_equal_sums_are_in_order_of_their_hashes() -> None:
    assert [document for document, _ in weighted_sum([[("b", 2.0), ("a", 1.0)], [("a", 5.0), ("b", 3.0)]], [1, 1])] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1.0], "2 lists need as many weights, not 1"),
        ([1.0, -1.0], "a weight must not be negative, not -1.0"),
        ([0.0, 0.0], "at least one list needs a weight above 0"),
        ([1.0, math.nan], "`weight` must be a finite number, not nan"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: list[float], said: str) -> None:
    for method in ("rrf", "weighted"):
        with pytest.raises(ValueError, match=said):
            fuse([DENSE, SPARSE], weights, FusionParams(method=method), 60)  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="`score` must be a finite number, not nan"):
        weighted_sum([[("a", math.nan)]], [1])


SCORED = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-20, 20).map(float), max_size=8), max_size=4)


@given(SCORED, st.sampled_from(sorted(NORMALISERS)), st.randoms(use_true_random=False))
def test_a_weighted_sum_does_not_depend_on_the_order_of_the_lists(
    scored: list[dict[str, float]], name: Any, random: Random
) -> None:
    lists = [(_sorted(scores), 1.0 + place) for place, scores in enumerate(scored)]
    fused = weighted_sum([ranked for ranked, _ in lists], [weight for _, weight in lists], NORMALISERS[name])
    random.shuffle(lists)
    assert fused == weighted_sum([ranked for ranked, _ in lists], [weight for _, weight in lists], NORMALISERS[name])
    assert sorted(document for document, _ in fused) == sorted(set().union(*scored))


@given(SCORED, st.sampled_from(["min-max", "rank"]), st.sampled_from("abcdefgh"))
def test_a_better_score_never_lowers_a_document(scored: list[dict[str, float]], name: Any, document: str) -> None:
    best = [{**scores, document: 100.0} if document in scores else scores for scores in scored]
    before, after = (
        [
            found
            for found, _ in weighted_sum([_sorted(scores) for scores in lists], [1.0] * len(lists), NORMALISERS[name])
        ]
        for lists in (scored, best)
    )
    if document in before:
        assert after.index(document) <= before.index(document)


def _sorted(scores: Mapping[str, float]) -> Ranked:
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))


def _other_on_purpose(case: Mapping[str, Any], name: str) -> bool:
    """Where we differ from ranx.

    It gives every document of a constant list 0, and a missing document 0, which is the mean of z-scores; its ranks
    tell apart documents with equal scores.
    """
    documents = set().union(*case["lists"])
    constant = any(len(set(scores.values())) == 1 for scores in case["lists"])
    missing = any(documents - set(scores) for scores in case["lists"])
    tied = any(len(set(scores.values())) < len(scores) for scores in case["lists"])
    return constant or (name == "z-score" and missing) or (name == "rank" and tied)


def as_expected(case: Mapping[str, Any], name: Any) -> bool:
    ours = [dict(zip(scores, NORMALISERS[name](list(scores.values())).found, strict=True)) for scores in case["lists"]]
    fused = dict(weighted_sum([_sorted(scores) for scores in case["lists"]], case["weights"], NORMALISERS[name]))
    said = case["said"][name]
    if _other_on_purpose(case, name):
        return fused != pytest.approx(said["sum"], rel=1e-9)
    lists = [pytest.approx(scores, rel=1e-9, abs=1e-12) for scores in said["lists"]]
    return ours == lists and fused == pytest.approx(said["sum"], rel=1e-9, abs=1e-12)


def test_ranx_fuses_ranks_alike() -> None:
    wrong = []
    for number, case in enumerate(ORACLE["cases"]):
        found = dict(named(rrf, [list(scores) for scores in case["lists"]]))
        if found != pytest.approx(case["said"]["rrf"], rel=1e-12):
            wrong.append((number, case["shape"], found))
    assert wrong == []


def test_ranx_normalises_and_sums_alike() -> None:
    numbered = list(enumerate(ORACLE["cases"]))
    assert [
        (number, case["shape"], name)
        for number, case in numbered
        for name in fusion_oracle.NORMS
        if not named(as_expected, case, name)
    ] == []


def test_the_recorded_cases_are_those_of_the_generator() -> None:
    assert [
        {key: case[key] for key in ("shape", "lists", "weights")} for case in ORACLE["cases"]
    ] == fusion_oracle.cases()
    assert {case["shape"] for case in ORACLE["cases"]} == set(fusion_oracle.SHAPES)


@pytest.mark.filterwarnings("ignore")
def test_ranx_says_today_what_was_recorded() -> None:
    pytest.importorskip("ranx", reason="ranx is not installed: its recorded replies are compared alone")
    for case in ORACLE["cases"][: len(fusion_oracle.SHAPES)]:
        said = fusion_oracle.asked(case)
        assert said["rrf"] == pytest.approx(case["said"]["rrf"])
        for name in fusion_oracle.NORMS:
            assert said[name]["sum"] == pytest.approx(case["said"][name]["sum"])
