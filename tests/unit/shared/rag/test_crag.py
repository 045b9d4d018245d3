"""CRAG's decision: from scores and thresholds to an action, and evaluators that fail."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.params import CragParams, Limits
from shared.rag.crag import (
    SHIPPED_VECTORS,
    THRESHOLDS,
    UNKNOWN,
    ListAction,
    Score,
    Thresholds,
    choose_thresholds,
    decide_action,
    flag_score,
    make_decision,
    make_evaluation,
    merge_passages,
    score_by_similarity,
)
from shared.replies import Failure, FailureKind, Hit, Retrieved

LIMITS = Thresholds(0.5, -0.5)
"""T5's scores may be negative, and so may thresholds."""
GONE = Failure(kind=FailureKind.CONNECTION, detail="gone")
KNOWN = st.floats(-2, 2)
SCORES = st.lists(KNOWN | st.just(math.nan) | st.just(GONE) | st.none(), max_size=6)


def dense(**cosines: float) -> Retrieved:
    hits = (Hit(document=name, rank=rank, score=score) for rank, (name, score) in enumerate(cosines.items(), start=1))
    return Retrieved(hits=tuple(hits))


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (0.51, 2), (0.5, 2), (0.49, 1), (0.0, 1), (-0.5, 1), (-0.51, 0), (math.inf, 2), (-math.inf, 0),
        (math.nan, None), (None, None), (GONE, None),
    ],
)  # fmt: skip
def test_a_flag_follows_from_two_thresholds(score: Score, expected: int | None) -> None:
    assert flag_score(score, LIMITS) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], ListAction.CORRECT),
        ([-1.0, 0.9, -1.0], ListAction.CORRECT),
        ([0.4, 0.5], ListAction.CORRECT),
        ([0.9, GONE, math.nan], ListAction.CORRECT),
        ([0.49], ListAction.AMBIGUOUS),
        ([-0.5], ListAction.AMBIGUOUS),
        ([-1.0, -0.5], ListAction.AMBIGUOUS),
        ([-0.51, -1.0], ListAction.INCORRECT),
        ([], ListAction.INCORRECT),
        ([GONE], ListAction.AMBIGUOUS),
        ([None], ListAction.AMBIGUOUS),
        ([math.nan], ListAction.AMBIGUOUS),
        ([-1.0, GONE], ListAction.AMBIGUOUS),
        ([-1.0, math.nan], ListAction.AMBIGUOUS),
    ],
)
def test_the_best_flag_decides(scores: list[Score], expected: ListAction) -> None:
    assert decide_action(scores, LIMITS) is expected


def test_crossed_thresholds_leave_no_room_for_doubt() -> None:
    crossed = Thresholds(0.2, 0.8)
    assert [decide_action([score], crossed) for score in (0.1, 0.2, 0.5)] == [
        ListAction.INCORRECT,
        ListAction.CORRECT,
        ListAction.CORRECT,
    ]


@given(SCORES, KNOWN, KNOWN, st.floats(0, 2))
def test_a_higher_lower_threshold_never_makes_a_list_ambiguous(
    scores: list[Score], upper: float, lower: float, rise: float
) -> None:
    before = decide_action(scores, Thresholds(upper, lower))
    after = decide_action(scores, Thresholds(upper, lower + rise))
    assert before is after or (before, after) == (ListAction.AMBIGUOUS, ListAction.INCORRECT)


@given(SCORES, KNOWN, KNOWN, st.randoms(use_true_random=False))
def test_the_order_of_the_documents_decides_nothing(scores: list[Score], upper: float, lower: float, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert decide_action(shuffled, Thresholds(upper, lower)) is decide_action(scores, Thresholds(upper, lower))


def test_every_evaluator_has_thresholds_and_a_job_may_set_its_own() -> None:
    for evaluator, own in THRESHOLDS.items():
        assert choose_thresholds(evaluator, CragParams()) == own
        assert choose_thresholds(evaluator, CragParams(lower=0.0)) == (own.upper, 0.0)
        assert choose_thresholds(evaluator, CragParams(upper=0.9, lower=0.1)) == (0.9, 0.1)


def test_similarity_has_the_thresholds_of_the_corpus_s_embedder() -> None:
    assert choose_thresholds("similarity", CragParams()) == UNKNOWN
    assert choose_thresholds("similarity", CragParams(similarity=SHIPPED_VECTORS)) == (0.66, 0.54)


def test_calibrated_thresholds_count_where_the_job_wants_them() -> None:
    params = CragParams(thresholds="calibrated", calibrated=Limits(upper=0.9, lower=None))
    assert choose_thresholds("judge", params) == (0.9, None)
    assert choose_thresholds("judge", CragParams(thresholds="calibrated", calibrated=Limits(upper=0.9), lower=0.2)) == (
        0.9,
        0.2,
    )
    assert choose_thresholds("judge", CragParams(calibrated=Limits(upper=0.9))) == THRESHOLDS["judge"]
    failed = make_evaluation("judge", {"a": GONE}, [dense(a=0.9)], params)
    assert failed.thresholds == UNKNOWN


@pytest.mark.parametrize(
    ("limits", "scores", "expected"),
    [
        (Thresholds(None, None), [0.0, 1.0], ListAction.AMBIGUOUS),
        (Thresholds(None, None), [], ListAction.INCORRECT),
        (Thresholds(None, 0.5), [1.0], ListAction.AMBIGUOUS),
        (Thresholds(None, 0.5), [0.4], ListAction.INCORRECT),
        (Thresholds(0.5, None), [0.0], ListAction.AMBIGUOUS),
        (Thresholds(0.5, None), [0.5], ListAction.CORRECT),
    ],
)
def test_a_threshold_that_nobody_knows_decides_nothing(
    limits: Thresholds, scores: list[Score], expected: ListAction
) -> None:
    assert decide_action(scores, limits) is expected


def test_similarity_is_the_match_and_how_far_it_stands_out() -> None:
    assert score_by_similarity(["a", "b", "c"], [dense(a=0.7, b=0.5, c=0.3)]) == pytest.approx(
        {"a": 0.9, "b": 0.5, "c": 0.1}
    )


def test_similarities_stay_between_0_and_1() -> None:
    assert score_by_similarity(["a", "b"], [dense(a=1.0, b=-0.5)]) == {"a": 1.0, "b": 0.0}


def test_similarity_is_compared_with_the_jobs_thresholds() -> None:
    found = make_evaluation("similarity", {"a": None, "b": None}, [dense(a=0.7, b=0.3)], CragParams(upper=0.95))
    assert found.scores == pytest.approx({"a": 0.9, "b": 0.1})
    assert (found.action, found.fallback) == (ListAction.AMBIGUOUS, None)


def test_a_document_of_another_list_counts_as_the_last_dense_one() -> None:
    found = score_by_similarity(["x", "b"], [dense(a=0.7, b=0.3)])
    assert found["x"] == found["b"]


def test_the_questions_own_search_counts_before_a_rewritten_ones() -> None:
    found = score_by_similarity(["a", "b"], [dense(a=0.6), dense(a=0.9, b=0.6)])
    assert found["a"] == found["b"]


def test_without_a_dense_hit_similarity_knows_nothing() -> None:
    evaluation = make_evaluation("similarity", {"a": None}, [], CragParams())
    assert evaluation.scores == {"a": None}
    assert (evaluation.action, evaluation.confidence, evaluation.unknown) == (ListAction.AMBIGUOUS, None, 1)


def test_an_evaluator_that_fails_altogether_is_replaced_by_similarity() -> None:
    own = CragParams(upper=0.1, lower=0.05, similarity=SHIPPED_VECTORS)
    found = make_evaluation("judge", {"a": GONE, "b": GONE}, [dense(a=0.9, b=0.1)], own)
    assert (found.evaluator, found.fallback) == ("similarity", "connection")
    assert found.thresholds == (0.66, 0.54)
    assert (found.scores, found.action) == ({"a": 1.0, "b": 0.0}, ListAction.CORRECT)


def test_an_evaluator_that_fails_for_some_documents_is_kept() -> None:
    found = make_evaluation("judge", {"a": GONE, "b": 0.0}, [dense(a=0.9)], CragParams())
    assert (found.evaluator, found.fallback, found.action) == ("judge", None, ListAction.AMBIGUOUS)
    assert (found.confidence, found.unknown) == (0.0, 1)


def test_no_documents_are_no_failed_evaluation() -> None:
    found = make_evaluation("judge", {}, [], CragParams())
    assert (found.fallback, found.action, found.confidence) == (None, ListAction.INCORRECT, None)


def test_what_is_not_known_to_be_irrelevant_is_of_use() -> None:
    found = make_evaluation("judge", {"a": 0.25, "b": 0.0, "c": GONE, "d": 1.0}, [], CragParams())
    assert found.list_useful() == ["a", "c", "d"]
    assert found.rank_documents() == ["d", "a", "b", "c"]


def test_similarity_flags_documents_and_orders_none() -> None:
    found = make_evaluation(
        "similarity", {"b": None, "a": None}, [dense(a=0.9, b=0.1)], CragParams(upper=0.9, lower=0.5)
    )
    assert found.list_useful() == ["a"]
    assert found.rank_documents() == ["b", "a"]
    assert not found.orders


def test_a_decision_holds_what_it_was_made_of() -> None:
    found = make_evaluation("judge", {"a": 0.5, "b": GONE}, [], CragParams(upper=0.9))
    decision = make_decision(found, 0.4, 1)
    assert (decision.stage, decision.action, decision.round, decision.fallback) == ("crag", "ambiguous", 1, None)
    assert decision.detail == {
        "evaluator": "judge", "confidence": 0.5, "upper": 0.9, "lower": 0.25, "documents": 2.0, "unknown": 1.0,
        "diversity": 0.4,
    }  # fmt: skip


def test_two_kinds_of_knowledge_are_told_apart() -> None:
    assert merge_passages("a; b", "c") == "Knowledge1: a; b [sep] Knowledge2: c"
    assert (merge_passages("a", ""), merge_passages("", "c"), merge_passages("", "")) == ("a", "c", "")
