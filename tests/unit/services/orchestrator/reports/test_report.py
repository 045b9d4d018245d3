"""What samples add up to, and what a reader is told with it."""

import pytest

from services.orchestrator.reports.tally import SampleTally
from shared.contracts.sample_rows import SampleRow
from shared.contracts.samples import Decision, Extraction, Outcome, Trace
from shared.statistics.intervals import wilson
from shared.storage.samples import SampleWithOutcome


def sample(index: int = 0, **fields: object) -> SampleRow:
    """A completed sample without gold answer, level or subject."""
    blank = dict.fromkeys(SampleRow.__struct_fields__)
    known = {"repeat": 0, "question": "?", "state": "completed", "truncated": False, "context": (), "duplicates": 0}
    return SampleRow(**{**blank, **known, "unscored": False, "index": index, **fields})  # type: ignore[arg-type]


def tally(*rows: SampleRow) -> SampleTally:
    """A tally of these samples, of whose outcomes nothing more is known."""
    return traced(*((row, None) for row in rows))


def traced(*samples: SampleWithOutcome) -> SampleTally:
    """A tally of these samples."""
    made = SampleTally()
    made.add(samples)
    return made


def decided(*decisions: Decision, refusal: str | None = None) -> SampleWithOutcome:
    """A sample whose method did this."""
    trace = Trace(decisions=decisions)
    return sample(), Outcome(answer=None, extraction=Extraction.MISSING, refusal=refusal, trace=trace)


def test_accuracy_is_the_share_of_graded_samples_with_wilsons_interval() -> None:
    """Three of four, one sample without a verdict left out."""
    verdicts = (True, True, True, False, None)
    figure = tally(*(sample(n, correct=verdict) for n, verdict in enumerate(verdicts))).figures().accuracy
    interval = wilson(3, 4)
    assert (figure.value, figure.correct, figure.graded) == (0.75, 3, 4)
    assert (figure.low, figure.high) == (interval.low, interval.high)


def test_nothing_graded_has_no_accuracy() -> None:
    """Not 0 %: unknown, anywhere between 0 and 1."""
    figure = tally(sample(correct=None)).figures().accuracy
    assert (figure.value, figure.low, figure.high, figure.graded) == (None, 0.0, 1.0, 0)


def test_repeats_do_not_narrow_the_interval() -> None:
    """Five copies of the same two verdicts say no more than the two."""
    once = tally(sample(0, correct=True), sample(1, correct=False)).figures().accuracy
    copies = [sample(item, repeat=repeat, correct=item == 0) for item in (0, 1) for repeat in range(5)]
    figure = tally(*copies).figures().accuracy
    assert (figure.low, figure.high) == (once.low, once.high)
    assert (figure.correct, figure.graded) == (5, 10)


def test_both_graders_are_counted_apart_and_their_disagreements_named() -> None:
    """A disagreement needs two verdicts."""
    rows = [sample(0, correct=True, strict=False), sample(1, correct=True, strict=True), sample(2, strict=True)]
    figures = tally(*rows).figures()
    assert (figures.accuracy.correct, figures.strict.correct, figures.disagreements) == (2, 2, 1)


def test_what_went_wrong_is_counted_by_kind() -> None:
    """Extraction, failures, grading failures, truncation, unscored samples, dropped duplicates."""
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
    """An item that names none stands apart."""
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
    """One line "unknown" would say what `accuracy` says."""
    assert getattr(tally(sample(correct=True)).figures(), group) == {}


def test_decisions_are_counted_by_stage_and_action_and_fallbacks_by_their_reason() -> None:
    """A fallback is an action, too."""
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
    """Nothing failed."""
    figures = traced(decided(refusal="no document was found"), decided()).figures()
    assert (figures.refused, figures.failures) == (1, {})
