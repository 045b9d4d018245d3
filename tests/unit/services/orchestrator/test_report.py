"""What samples add up to, and what a reader is told with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.reports.tally import SampleTally
from shared.samples import Decision, Extraction, Outcome, SampleRow, Trace
from shared.statistics.intervals import wilson
from shared.storage.samples import SampleWithOutcome


def sample(index: int = 0, **fields: object) -> SampleRow:
    blank = dict.fromkeys(SampleRow.__struct_fields__)
    known = {"repeat": 0, "question": "?", "state": "completed", "truncated": False, "context": (), "duplicates": 0}
    return SampleRow(**{**blank, **known, "unscored": False, "index": index, **fields})  # type: ignore[arg-type]


def tally(*rows: SampleRow) -> SampleTally:
    return traced(*((row, None) for row in rows))


def traced(*samples: SampleWithOutcome) -> SampleTally:
    made = SampleTally()
    made.add(samples)
    return made


def decided(*decisions: Decision, refusal: str | None = None) -> SampleWithOutcome:
    trace = Trace(decisions=decisions)
    return sample(), Outcome(answer=None, extraction=Extraction.MISSING, refusal=refusal, trace=trace)


def test_accuracy_is_the_share_of_graded_samples_with_wilsons_interval() -> None:
    verdicts = (True, True, True, False, None)
    figure = tally(*(sample(n, correct=verdict) for n, verdict in enumerate(verdicts))).figures().accuracy
    interval = wilson(3, 4)
    assert (figure.value, figure.correct, figure.graded) == (0.75, 3, 4)
    assert (figure.low, figure.high) == (interval.low, interval.high)


def test_nothing_graded_has_no_accuracy() -> None:
    figure = tally(sample(correct=None)).figures().accuracy
    assert (figure.value, figure.low, figure.high, figure.graded) == (None, 0.0, 1.0, 0)


def test_repeats_do_not_narrow_the_interval() -> None:
    once = tally(sample(0, correct=True), sample(1, correct=False)).figures().accuracy
    copies = [sample(item, repeat=repeat, correct=item == 0) for item in (0, 1) for repeat in range(5)]
    figure = tally(*copies).figures().accuracy
    assert (figure.low, figure.high) == (once.low, once.high)
    assert (figure.correct, figure.graded) == (5, 10)


def answered(*repeats_right: tuple[int, int], **fields: object) -> list[SampleRow]:
    return [
        sample(item, repeat=repeat, correct=repeat < right, strict=repeat < right, **fields)
        for item, (right, answers) in enumerate(repeats_right)
        for repeat in range(answers)
    ]


UNEQUAL = [(5, 5)] * 10 + [(0, 1)] * 30
"""Ten items are right in all of five repeats, thirty were answered once and wrong."""


def test_an_item_counts_once_however_often_it_was_answered() -> None:
    figures = tally(*answered(*UNEQUAL, level="1", subject="algebra")).figures()
    shares = [figures.accuracy, figures.strict, figures.by_level["1"], figures.by_subject["algebra"]]
    for each in shares:
        assert (each.value, each.items, each.correct, each.graded) == (0.25, 40, 50, 80)
        assert (each.low, each.high) == (wilson(10, 40).low, wilson(10, 40).high)
    assert figures.bootstrap is not None
    assert figures.bootstrap.value == 0.25
    assert figures.items == 40


@given(st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=30))
def test_the_accuracy_lies_in_its_interval(items: list[tuple[int, int]]) -> None:
    figures = tally(*answered(*items)).figures()
    accuracy = figures.accuracy
    assert accuracy.value is not None
    assert accuracy.low <= accuracy.value <= accuracy.high
    assert figures.bootstrap is not None
    assert figures.bootstrap.value == accuracy.value
    if len({answers for _, answers in items}) == 1:
        assert accuracy.value == accuracy.correct / accuracy.graded
        assert figures.repeats.mean == pytest.approx(accuracy.value)
        assert figures.repeats.items == accuracy.items


def test_failed_repeats_are_no_answers_of_their_item() -> None:
    rows = [
        sample(0, repeat=0, correct=True),
        sample(0, repeat=1, state="failed", failure="timeout"),
        sample(1, repeat=0, correct=True),
        sample(1, repeat=1, correct=False),
        *(sample(2, repeat=repeat, state="failed", failure="timeout") for repeat in (0, 1)),
        *(sample(3, repeat=repeat, correct=None) for repeat in (0, 1)),
        sample(4, state="cancelled"),
    ]
    made = tally(*rows)
    accuracy, worst = made.figures().accuracy, made.count_failures_as_wrong()
    assert (accuracy.value, accuracy.items, accuracy.correct, accuracy.graded) == (0.75, 2, 2, 3)
    assert (worst.items, worst.correct, worst.graded) == (3, 2, 6)
    assert worst.value == pytest.approx(1 / 3)
    assert made.figures().items == 4


def test_repeats_are_compared_over_the_items_that_all_of_them_answered() -> None:
    repeats = tally(*answered(*UNEQUAL)).figures().repeats
    assert (repeats.accuracies, repeats.items, repeats.mean, repeats.std) == ((1.0,) * 5, 10, 1.0, 0.0)


def test_a_repeat_that_failed_altogether_leaves_the_others_comparable() -> None:
    rows = [
        *(sample(item, repeat=repeat, correct=item <= repeat) for item in (0, 1) for repeat in (0, 1)),
        *(sample(item, repeat=2, state="failed", failure="timeout") for item in (0, 1)),
    ]
    repeats = tally(*sorted(rows, key=lambda row: (row.index, row.repeat))).figures().repeats
    assert (repeats.accuracies, repeats.items, repeats.mean) == ((0.5, 1.0, None), 2, 0.75)


def test_repeats_without_a_common_item_are_not_compared() -> None:
    repeats = tally(sample(0, repeat=0, correct=True), sample(1, repeat=1, correct=False)).figures().repeats
    assert (repeats.accuracies, repeats.items, repeats.std) == ((None, None), 0, None)


def test_both_graders_are_counted_apart_and_their_disagreements_named() -> None:
    rows = [sample(0, correct=True, strict=False), sample(1, correct=True, strict=True), sample(2, strict=True)]
    figures = tally(*rows).figures()
    assert (figures.accuracy.correct, figures.strict.correct, figures.disagreements) == (2, 2, 1)


def test_what_went_wrong_is_counted_by_kind() -> None:
    rows = [
        sample(0, extraction="ok", truncated=True, duplicates=2),
        sample(1, extraction="missing", unscored=True, grading_failure="grader_timeout"),
        sample(2, extraction="missing", duplicates=1),
        sample(3, state="failed", failure="context_exceeded"),
    ]
    figures = tally(*rows).figures()
    assert figures.extraction == {"missing": 2, "ok": 1}
    assert figures.failures == {"context_exceeded": 1}
    assert figures.grading_failures == {"grader_timeout": 1}
    assert (figures.truncated, figures.unscored, figures.duplicates_dropped) == (1, 1, 3)


def test_groups_are_by_level_and_subject() -> None:
    rows = [
        sample(0, level="1", subject="algebra", correct=True),
        sample(1, level="5", subject="algebra", correct=False),
        sample(2, subject="algebra", correct=True),
    ]
    figures = tally(*rows).figures()
    assert {level: figure.value for level, figure in figures.by_level.items()} == {"1": 1.0, "5": 0.0, "unknown": 1.0}
    assert figures.by_subject["algebra"].correct == 2


@pytest.mark.parametrize("group", ["by_level", "by_subject"])
def test_a_dataset_without_groups_has_no_table_of_them(group: str) -> None:
    assert getattr(tally(sample(correct=True)).figures(), group) == {}


def test_decisions_are_counted_by_stage_and_action_and_fallbacks_by_their_reason() -> None:
    figures = traced(
        decided(Decision(stage="crag", action="correct"), Decision(stage="rewrite", action="rewritten")),
        decided(Decision(stage="crag", action="ambiguous", fallback="timeout")),
        decided(*(Decision(stage="critic", action="continue", round=n) for n in (1, 2))),
        decided(Decision(stage="rewrite", action="original", fallback="timeout")),
        decided(Decision(stage="rewrite", action="original", fallback="unparsed")),
    ).figures()
    assert figures.decisions == {
        "crag": {"ambiguous": 1, "correct": 1},
        "critic": {"continue": 2},
        "rewrite": {"original": 2, "rewritten": 1},
    }
    assert figures.fallbacks == {"crag": {"timeout": 1}, "rewrite": {"timeout": 1, "unparsed": 1}}


def test_refusals_are_counted_apart_from_failures() -> None:
    figures = traced(decided(refusal="no document was found"), decided()).figures()
    assert (figures.refused, figures.failures) == (1, {})
