"""Ranked lists: fused, normalised and measured; other implementations agree."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid
from shared.calls import Estimate
from shared.params import FusionParams
from shared.rag import metrics
from shared.rag.fusion import (
    NORMALISERS,
    Normaliser,
    Part,
    Ranked,
    find_best_ranks,
    fuse,
    interleave,
    keep_first_of_each,
    logistic,
    min_max,
    rank,
    raw,
    rerank,
    rrf,
    run_in_step,
    sigmoid,
    weighted_sum,
    z_score,
)
from shared.rag.metrics import measure_per_query
from tests.unit import fusion_oracle
from tests.unit.cases import named
from tests.unit.shared.pipelines.test_pipelines import drive

# Fusion by reciprocal ranks and by normalised scores; ranx, another implementation, agrees.

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
    with pytest.raises(ValueError, match="`k` must not be negative, but is -1"):
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
        ([1.0], "2 lists need one weight each, but got 1"),
        ([1.0, -1.0], "a weight must not be negative, but one is -1.0"),
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
RELATIVE = pytest.mark.parametrize("normaliser", [min_max, z_score, sigmoid, rank])
BM25 = [100.0, 20.0, 15.0, 10.0, 5.0]
"""The list of seed document 003, section on normalisation."""


def test_min_max_of_the_source_documents_list() -> None:
    assert min_max(BM25).found == pytest.approx([1, 0.158, 0.105, 0.053, 0], abs=5e-4)


def test_sigmoid_of_the_source_documents_list() -> None:
    # Its `center=30` is the mean of the list, and its slope 1; the values that it prints follow from no slope.
    assert sigmoid(BM25).found == pytest.approx([0.879, 0.430, 0.395, 0.362, 0.330], abs=5e-4)


def test_the_middle_of_a_sigmoid_is_the_mean_whatever_its_slope() -> None:
    assert sigmoid([-7, -8, -9]).found[1] == sigmoid([-7, -8, -9], slope=5).found[1] == 0.5


def test_the_slope_multiplies_the_deviations() -> None:
    # Deviations of [3, 1] are 1 and -1; 1 / (1 + e ** -2) = 0.8808.
    assert sigmoid([3, 1], slope=2) == (pytest.approx([0.8808, 0.1192], abs=5e-5), pytest.approx(0.1192, abs=5e-5))
    lists, params = ([("a", 3.0), ("b", 1.0)],), FusionParams(method="weighted", normaliser="sigmoid", slope=2)
    assert dict(fuse(lists, (1,), params, 60)) == pytest.approx({"a": 0.8808, "b": 0.1192}, abs=5e-5)


def test_raw_scores_are_added_as_elasticsearch_adds_them() -> None:
    """`knn` with boost 10 and `match`: a document that one of them misses has the other's score alone."""
    dense, sparse = [("a", 0.9), ("b", 0.5)], [("b", 7.0), ("c", 3.0)]
    params = FusionParams(method="weighted", normaliser="raw")
    assert fuse([dense, sparse], (10, 1), params, 60) == [("b", 12.0), ("a", 9.0), ("c", 3.0)]


def test_a_document_that_raw_scores_miss_does_not_pass_a_negative_one() -> None:
    assert raw([0.2, -0.1]) == ([0.2, -0.1], -0.1)


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


@RELATIVE
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


@RELATIVE
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


# Measures of ranked lists: golden values, and the definitions by a second hand.

NAMES = ("nDCG@5", "nDCG@3", "Recall@5", "Precision@5", "F1@5", "MAP", "MAP@5", "MRR", "MRR@5")
DOCUMENTS = [f"d{n}" for n in range(8)]
GRADES = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(1, 4), min_size=1)
RANKED = st.permutations(DOCUMENTS).flatmap(lambda each: st.integers(0, 8).map(lambda n: each[:n]))


def one(grades: Mapping[str, int], ranked: Sequence[str], *names: str) -> dict[str, float]:
    return measure_per_query({"q": grades}, {"q": ranked}, names)["q"]


def by_hand(grades: Mapping[str, int], ranked: Sequence[str]) -> dict[str, float]:
    hits = [place for place, document in enumerate(ranked, start=1) if document in grades]
    precision, recall = (sum(place <= 5 for place in hits) / n for n in (5, len(grades)))

    def ndcg(k: int) -> float:
        gains = [grades.get(document, 0) for document in ranked[:k]]
        ideal = sorted(grades.values(), reverse=True)[:k]
        found, best = (sum(gain / math.log2(place + 2) for place, gain in enumerate(of)) for of in (gains, ideal))
        return found / best

    def average(k: int) -> float:
        return sum((at + 1) / place for at, place in enumerate(hits) if place <= k) / len(grades)

    first = hits[0] if hits else None
    values = (
        ndcg(5), ndcg(3), recall, precision,
        2 * precision * recall / (precision + recall) if hits and hits[0] <= 5 else 0.0,
        average(8), average(5), 1 / first if first else 0.0, 1 / first if first and first <= 5 else 0.0,
    )  # fmt: skip
    return dict(zip(NAMES, values, strict=True))


def test_golden_values_of_trec_eval() -> None:
    found = one({"d1": 1, "d4": 2}, ["d1", "d2", "d3"], "nDCG@5", "Recall@5", "Precision@5", "MRR", "MAP@5", "F1@5")
    assert found["nDCG@5"] == pytest.approx(0.380094, abs=5e-7)
    assert (found["Recall@5"], found["Precision@5"], found["MRR"], found["MAP@5"]) == (0.5, 0.2, 1.0, 0.5)
    assert found["F1@5"] == pytest.approx(2 * 0.5 * 0.2 / 0.7)


@given(GRADES, RANKED)
def test_measures_are_what_their_definitions_say(grades: dict[str, int], ranked: list[str]) -> None:
    assert one(grades, ranked, *NAMES) == pytest.approx(by_hand(grades, ranked))


def test_a_query_that_was_not_answered_counts_0() -> None:
    found = measure_per_query({"a": {"d": 1}, "b": {"d": 1}}, {"a": []}, ["nDCG@10", "F1@10", "MRR@10"])
    assert found == {query: {"nDCG@10": 0, "F1@10": 0, "MRR@10": 0} for query in ("a", "b")}


def test_the_order_of_a_list_counts_not_the_names_in_it() -> None:
    for ranked in (["a", "z"], ["z", "a"]):
        assert one({ranked[0]: 1}, ranked, "MRR")["MRR"] == 1


def test_a_query_that_nobody_judged_is_in_no_figure() -> None:
    assert list(measure_per_query({"a": {"d": 1}}, {"a": ["d"], "b": ["d"]}, ["MAP"])) == ["a"]


@pytest.mark.parametrize(("name", "depth"), [("nDCG@10", 10), ("MAP", None), ("MAP@100", 100), ("F1@3", 3)])
def test_a_name_says_how_deep_it_looks(name: str, depth: int | None) -> None:
    assert metrics.get_cutoff(name) == depth


@pytest.mark.parametrize("name", ["ndcg@10", "nDCG", "Recall@0", "Recall", "Bleu@4", "MAP@", "nDCG@10 "])
def test_an_unknown_measure_is_refused_in_words(name: str) -> None:
    with pytest.raises(Invalid, match="unknown measure") as refused:
        metrics.get_cutoff(name)
    assert "nDCG@10" in str(refused.value.hint)
