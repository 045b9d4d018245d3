"""Thresholds from labelled data."""

import math
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.job import describe_calibration, format_threshold
from shared.rag import crag
from shared.rag.crag import MIN_OBSERVATIONS, TooFewObservations, calibrate
from shared.runtime.pins import gold_labels, observations
from shared.samples import Candidate, Decision, Extraction, Outcome, SampleRow, Trace

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
    assert printed["skipped"] == "1, without a confidence from the evaluator"
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
