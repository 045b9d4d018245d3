import math
import tracemalloc
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.job import describe_calibration, format_threshold
from shared.params import CragParams, Limits
from shared.rag import crag
from shared.rag.crag import (
    MIN_OBSERVATIONS,
    SHIPPED_VECTORS,
    THRESHOLDS,
    UNKNOWN,
    WORST,
    ListAction,
    Score,
    Strip,
    Thresholds,
    TooFewObservations,
    calibrate,
    choose_strips,
    choose_thresholds,
    cut_strips,
    decide_action,
    flag_score,
    make_decision,
    make_evaluation,
    merge_passages,
    score_by_similarity,
    score_strips,
    split_words,
)
from shared.replies import Failure, FailureKind, Hit, Retrieved
from shared.runtime.pins import gold_labels, observations
from shared.samples import Candidate, Decision, Extraction, Outcome, SampleRow, Trace

# CRAG's decision: from scores and thresholds to an action, and evaluators that fail.


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


def test_similarity_is_measured_against_all_that_was_found_also_where_a_threshold_cut_it() -> None:
    whole = dense(a=0.8, b=0.7, c=0.2)
    cut = msgspec.structs.replace(whole, hits=whole.hits[:2], cut=whole.hits[2:])
    params = CragParams()
    scores = dict.fromkeys("abc")
    assert make_evaluation("similarity", scores, [cut], params) == make_evaluation(
        "similarity", scores, [whole], params
    )


def test_a_judge_tells_relevant_documents_from_others_and_orders_them_only_by_request() -> None:
    scores: dict[str, Score] = {"irrelevant": 0.0, "helps": 0.75, "unknown": GONE, "perhaps": 0.25, "best": 1.0}
    by_class = ["helps", "best", "perhaps", "irrelevant", "unknown"]
    assert make_evaluation("judge", scores, [], CragParams()).rank_documents() == by_class
    by_score = ["best", "helps", "perhaps", "irrelevant", "unknown"]
    assert make_evaluation("judge", scores, [], CragParams(order="score")).rank_documents() == by_score
    assert make_evaluation("reranker", scores, [], CragParams()).rank_documents() == by_score


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


# Thresholds from labelled data.

SCORE = st.integers(0, 20).map(lambda score: score / 20)
PAIRS = st.tuples(
    st.lists(SCORE.map(lambda score: (score, True)), min_size=MIN_OBSERVATIONS, max_size=60),
    st.lists(SCORE.map(lambda score: (score, False)), min_size=MIN_OBSERVATIONS, max_size=60),
).map(lambda both: both[0] + both[1])


def separated(relevant: int = 50, others: int = 50) -> list[tuple[float, bool]]:
    return [(0.6 + 0.3 * at / relevant, True) for at in range(relevant)] + [
        (0.1 + 0.3 * at / others, False) for at in range(others)
    ]


def share(pairs: list[tuple[float, bool]]) -> float:
    return sum(label for _, label in pairs) / len(pairs)


def test_what_is_separated_is_told_apart() -> None:
    found = calibrate(separated(), trust=0.9)
    assert (found.observations, found.relevant) == (100, 50)
    assert found.upper.value is not None
    assert found.lower.value is not None
    assert 0.36 < found.upper.value < 0.4
    assert 0.62 < found.lower.value < 0.66
    assert found.upper.met == found.lower.met == 1.0


def test_intervals_hold_their_threshold_and_narrow_with_data() -> None:
    small, large = calibrate(separated(20, 20)), calibrate(separated(400, 400))
    widths = []
    for each in (small, large):
        assert each.upper.low is not None
        assert each.upper.high is not None
        assert each.upper.value is not None
        assert each.upper.low <= each.upper.value <= each.upper.high
        widths.append(each.upper.high - each.upper.low)
    assert widths[1] < widths[0]


def test_where_no_score_can_be_trusted_there_is_no_threshold() -> None:
    found = calibrate([(0.5, True)] * 30 + [(0.5, False)] * 30)
    assert (found.upper.value, found.upper.low, found.upper.met) == (None, None, 0.0)
    assert (found.lower.value, found.lower.high, found.lower.met) == (None, None, 0.0)


@pytest.mark.parametrize(("relevant", "others"), [(MIN_OBSERVATIONS - 1, 100), (100, MIN_OBSERVATIONS - 1), (0, 0)])
def test_too_few_of_either_kind_are_refused(relevant: int, others: int) -> None:
    with pytest.raises(TooFewObservations, match=f"{relevant} relevant and {others} irrelevant"):
        calibrate(separated(relevant, others) if relevant + others else [])


@pytest.mark.parametrize("trust", [0.4, 1.0])
def test_trust_is_a_share_that_can_be_reached(trust: float) -> None:
    with pytest.raises(ValueError, match="`trust` must be at least"):
        calibrate(separated(), trust)


def test_a_share_of_exactly_a_tenth_is_below_a_trust_of_nine_tenths() -> None:
    pairs = [(0.0, True)] + [(0.0, False)] * 9 + [(0.5, True)] * 20 + [(0.5, False)] * 11
    assert calibrate(pairs, 0.9).lower.value == 0.5


@pytest.fixture(scope="module")
def few_resamples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(crag, "RESAMPLES", 20)
        yield


@given(PAIRS, st.sampled_from([0.5, 0.7, 0.9]))
@pytest.mark.usefixtures("few_resamples")
def test_thresholds_are_the_outermost_that_hold_what_they_promise(
    pairs: list[tuple[float, bool]], trust: float
) -> None:
    found = calibrate(pairs, trust)
    scores = sorted({score for score, _ in pairs})
    trusted = [at for at in scores if share([pair for pair in pairs if pair[0] >= at]) >= trust - 1e-12]
    distrusted = [at for at in scores[1:] if share([pair for pair in pairs if pair[0] < at]) <= 1 - trust + 1e-12]
    assert found.upper.value == (min(trusted) if trusted else None)
    assert found.lower.value == (max(distrusted) if distrusted else None)


@given(PAIRS, st.randoms(use_true_random=False))
@pytest.mark.usefixtures("few_resamples")
def test_the_same_pairs_give_the_same_thresholds(pairs: list[tuple[float, bool]], random) -> None:  # type: ignore[no-untyped-def]
    found = calibrate(pairs)
    assert calibrate(pairs) == found
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert calibrate(shuffled).upper.value == found.upper.value


ROW = SampleRow(
    index=0, repeat=0, custom_id=None, question="q", gold=None, subject=None, level=None, state="completed",
    answer=None, extraction=None, truncated=False, correct=None, strict=None, grading_failure=None, failure=None,
    detail=None, context=(), duplicates=0, unscored=False, ended_at=None,
)  # fmt: skip


def outcome(
    confidence: float | None, *documents: str, fallback: str | None = None, evaluator: str = "judge"
) -> Outcome:
    detail: dict[str, str | float | bool | list[str] | None] = {"evaluator": evaluator, "confidence": confidence}
    later = Decision(stage="crag", action="correct", round=1, detail={**detail, "confidence": 1.0})
    first = Decision(stage="crag", action="ambiguous", detail=detail, fallback=fallback)
    candidates = [Candidate(document=each, rank=1, dense_rank=1) for each in documents]
    elsewhere = Candidate(document="x", rank=9, paths={"fallback": 1})
    trace = Trace(candidates=(*candidates, elsewhere), decisions=(first, later))
    return Outcome(answer=None, extraction=Extraction.MISSING, trace=trace)


def test_an_observation_is_the_first_confidence_and_whether_the_first_candidates_hold_a_relevant_one() -> None:
    batch = [(msgspec.structs.replace(ROW, index=at), outcome(0.5, "a")) for at in range(4)]
    gold = {0: {"a": 1}, 1: {"b": 1}, 2: {"x": 1}}
    labels = gold_labels(batch, {0, 1, 2, 3}, gold)
    assert observations(batch, labels, "judge") == [(0.5, True), (0.5, False), (0.5, False), (0.5, False)]


def test_what_is_not_known_is_no_observation() -> None:
    again = msgspec.structs.replace(ROW, repeat=1)
    assert gold_labels([(ROW, outcome(0.5, "a")), (again, outcome(0.5, "a"))], set(), {}) == {}
    assert gold_labels([(ROW, None), (again, outcome(0.5, "a"))], {0}, {}) == {}
    assert observations([(ROW, outcome(0.5, "a"))], {}, "judge") == []
    assert observations([(ROW, None), (again, outcome(0.5, "a"))], {0: True}, "judge") == []


def test_a_confidence_that_is_not_the_evaluators_own_is_skipped() -> None:
    odd = [
        outcome(0.5, fallback="connection", evaluator="similarity"),
        outcome(None),
        outcome(0.5, evaluator="reranker"),
    ]
    assert observations([(ROW, each) for each in odd], {0: False}, "judge") == [None, None, None]


def test_thresholds_are_printed_with_what_to_submit() -> None:
    found = calibrate(separated())
    printed = dict(describe_calibration({"skipped": 1, "calibration": msgspec.to_builtins(found)}))
    assert printed["lists"] == "50 with a relevant document, 50 without"
    assert printed["skipped"] == "1, for which the evaluator gave no confidence"
    assert str(printed["submit with"]).startswith("--set crag.upper=0.3")
    alike = calibrate([(0.5, True)] * 30 + [(0.5, False)] * 30)
    printed = dict(describe_calibration({"skipped": 0, "calibration": msgspec.to_builtins(alike)}))
    assert (printed["crag.upper"], printed["submit with"]) == ("no threshold is good enough", "")


def test_a_threshold_that_not_every_resample_has_says_so() -> None:
    text = format_threshold({"value": 0.5, "low": 0.25, "high": math.pi / 4, "met": 0.9})
    assert text == "0.5 (0.25 to 0.785, bootstrap 95 %; found in 90 % of the resamples)"


def test_a_long_job_needs_memory_for_its_observations_and_not_for_all_resamples() -> None:
    pairs = [(at / 3000, at % 7 != 0 and at > 1000) for at in range(3000)]
    tracemalloc.start()
    try:
        calibrate(pairs, 0.9)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# Knowledge strips: three ways to cut a passage, and which of the pieces stay.

LENGTHS = (0, 1, 9, 10, 49, 50, 51, 59, 60)
WINDOWS = ([], [1], [9], [10], [49], [50], [51], [59], [50, 10])
PASSAGES = st.lists(st.sampled_from(["a", "bb", "$x + y$", "c.", "d?", "好", "吗？", "e. f", "\n"]), max_size=130).map(
    " ".join
)


def passage(count: int) -> str:
    return " ".join(f"w{at}" for at in range(count))


def authors_code(psg: str, mode: Literal["fixed", "excerption"]) -> list[str]:
    """The rules of the authors' code, written once more; blanks around sentences are left out, as we do.

    A passage of fewer than 10 words is an error in it.
    """
    if mode == "fixed":
        found = psg.split(" ")
        cut = [" ".join(found[at : at + 50]) for at in range(0, len(found), 50)]
        if len(cut[-1].split(" ")) < 10:
            cut[-2:] = [f"{cut[-2]} {cut[-1]}"]
        return cut
    joined: list[str] = []
    for sentence in (each.strip() for part in psg.split("?") for each in part.split(". ")):
        if sentence in joined:
            continue
        if joined and len(sentence.split()) <= 5:
            joined[-1] += sentence
        else:
            joined.append(sentence)
    return [" ".join(joined[at : at + 3]) for at in range(0, len(joined), 3)]


@pytest.mark.parametrize(("count", "expected"), list(zip(LENGTHS, WINDOWS, strict=True)))
def test_windows_have_fifty_words_and_a_short_tail_belongs_to_the_last(count: int, expected: list[int]) -> None:
    found = cut_strips(passage(count), "fixed")
    assert [len(window.split()) for window in found] == expected
    assert " ".join(found) == passage(count)


@pytest.mark.parametrize("count", LENGTHS)
def test_a_selection_is_the_whole_passage(count: int) -> None:
    assert cut_strips(passage(count), "selection") == ([passage(count)] if count else [])


@pytest.mark.parametrize("count", LENGTHS)
def test_an_excerpt_of_one_sentence_is_the_passage(count: int) -> None:
    assert cut_strips(passage(count), "excerption") == ([passage(count)] if count else [])


S = [f"sentence number {name} has seven words here" for name in ("one", "two", "three", "four", "five")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (". ".join(S[:3]), [" ".join(S[:3])]),
        (". ".join(S[:4]), [" ".join(S[:3]), S[3]]),
        (". ".join([*S, S[0]]), [" ".join(S[:3]), " ".join(S[3:])]),
        ("? ".join(S[:2]), [" ".join(S[:2])]),
        (f"{S[0]}?", [S[0]]),
        (f"{S[0]}. only five words are here. {S[1]}", [f"{S[0]} only five words are here {S[1]}"]),
        (f"Why. {S[0]}", [f"Why {S[0]}"]),
        ("Why? So?", ["Why So"]),
        (f"{S[0]}. {S[0]}. {S[0]}", [S[0]]),
        ("?", []),
    ],
)  # fmt: skip
def test_excerpts_are_groups_of_three_sentences(text: str, expected: list[str]) -> None:
    assert cut_strips(text, "excerption") == expected


def test_nothing_is_cut_inside_a_formula() -> None:
    formula = "$a + b. c? d$"
    assert split_words(f"so {formula} holds") == ["so", formula, "holds"]
    assert cut_strips(f"it is {formula} that makes it all true. So.", "excerption") == [
        f"it is {formula} that makes it all true So."
    ]
    windows = cut_strips(f"{passage(49)} {formula} {passage(20)}", "fixed")
    assert [formula in window for window in windows] == [True, False]


def test_chinese_characters_are_words() -> None:
    assert split_words("鸭子 16 颗蛋") == ["鸭", "子", "16", "颗", "蛋"]
    assert [len(window) for window in cut_strips("好" * 60, "fixed")] == [50, 10]
    assert [len(window) for window in cut_strips("好" * 59, "fixed")] == [59]
    assert cut_strips("鸭子每天下十六颗蛋。她每天早上要吃三颗。为什么？", "excerption") == [
        "鸭子每天下十六颗蛋 她每天早上要吃三颗 为什么"
    ]


@given(st.lists(st.sampled_from(["a", "bb", "c.", "d?", "e"]), min_size=10, max_size=130).map(" ".join))
def test_without_formulas_the_strips_are_those_of_the_authors_code(text: str) -> None:
    for mode in ("fixed", "excerption"):
        theirs = ["".join(strip.split()) for strip in authors_code(text, mode)]
        assert ["".join(strip.split()) for strip in cut_strips(text, mode)] == [strip for strip in theirs if strip]


@given(PASSAGES)
def test_windows_lose_nothing(text: str) -> None:
    found = cut_strips(text, "fixed")
    assert [word for window in found for word in split_words(window)] == split_words(text)
    sizes = [len(split_words(window)) for window in found]
    assert set(sizes[:-1]) <= {50}
    assert all(10 <= size < 60 for size in sizes[-1:]) or len(sizes) == 1


@given(PASSAGES)
def test_no_strip_is_empty(text: str) -> None:
    assert all(strip.strip() for mode in ("selection", "fixed", "excerption") for strip in cut_strips(text, mode))  # type: ignore[arg-type]


def test_strips_are_scored_by_their_likeness_to_the_question() -> None:
    found = score_strips(
        "area of a triangle",
        [
            ("d", "the area of this triangle"),
            ("d", "music is a fine thing"),
            ("e", "music for all of"),
            ("e", "triangle"),
        ],
    )
    assert [strip.document for strip in found] == ["d", "d", "e", "e"]
    assert found[0].score > found[1].score > 0
    assert found[3].score == WORST < found[2].score


def test_the_best_strips_stay_in_their_order_or_by_score() -> None:
    pieces = [Strip("d", text, score) for text, score in (("a", 0.1), ("b", 0.9), ("c", 0.5), ("e", 0.9))]
    assert [strip.text for strip in choose_strips(pieces, 3, "original")] == ["b", "c", "e"]
    assert [strip.text for strip in choose_strips(pieces, 3, "score")] == ["b", "e", "c"]
    assert choose_strips(pieces, 9, "original") == pieces
    assert choose_strips([], 3, "score") == []
