"""A job's report: what its samples add up to, and what a reader is told with it."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.job import print_report
from mathrag.intervals import Interval, wilson
from mathrag.report_lines import describe_repeatability
from services.orchestrator.api.examples import make_example
from services.orchestrator.reports.label_agreement import (
    CorrectedMean,
    LabelAgreement,
    compute_agreement,
    estimate_corrected_mean,
)
from services.orchestrator.reports.metrics import MetricFigures, Metrics, list_metric_warnings
from services.orchestrator.reports.repeatability import Ratings, Repeatability
from services.orchestrator.reports.report import MOST, AnswersFound, Contaminated, Contamination, Disagreements, Scores
from services.orchestrator.reports.tally import (
    ByContent,
    Endings,
    SampleTally,
    count_moves,
    index_by_content,
    sort_counts,
)
from shared.calls import DocumentRef, Request
from shared.pipelines.binding import Pin
from shared.rag.provenance import Ending
from shared.replies import Failure, FailureKind, Rated, Reply
from shared.samples import (
    Candidate,
    ControlScore,
    Decision,
    Extraction,
    JudgedPart,
    MetricScore,
    Outcome,
    SampleRow,
    Trace,
)
from shared.shapes import FEWEST, KINDS, Value, What
from shared.storage.labels import CountedLabels, JudgeScore, LabelSet, SystemRating
from shared.storage.samples import SampleEnding, SampleWithOutcome

# What samples add up to, and what a reader is told with it.


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


# Endings side by side, near-duplicates and what they are worth, and answers that the graders differ on.


def ended(index: int, ending: str | None, **fields: object) -> SampleRow:
    return sample(index, ending=ending, **fields)


def contamination(*rows: SampleRow) -> Contamination | None:
    made = Contaminated()
    made.add((row, None) for row in rows)
    return made.figures()


def test_endings_are_counted_in_one_order_and_cancelled_samples_have_none() -> None:
    made = Endings()
    for batch in (["logic", "failed"], ["correct", None, "logic"]):
        made.add((ended(n, each), None) for n, each in enumerate(batch))
    assert list(made.counts().items()) == [("correct", 1), ("failed", 1), ("logic", 2)]


def test_what_moved_between_two_jobs_is_a_table_of_endings() -> None:
    left = {1: "logic", 2: "logic", 3: "correct", 4: "logic"}
    right = {1: "correct", 2: "logic", 3: "arithmetic", 5: "correct"}
    assert count_moves([(left, right)]) == {"correct": {"arithmetic": 1}, "logic": {"correct": 1, "logic": 1}}
    assert count_moves([(left, right), (left, left)])["logic"] == {"correct": 1, "logic": 4}
    assert count_moves([]) == {}


def test_samples_are_matched_by_what_was_asked() -> None:
    here = index_by_content([SampleEnding(b"a1", 0, "logic"), SampleEnding(b"b", 0, "failed")])
    there = index_by_content([SampleEnding(b"a1", 0, "correct")])
    other = index_by_content([SampleEnding(b"a2", 0, "correct")])
    assert count_moves([(here, there)]) == {"logic": {"correct": 1}}
    assert count_moves([(here, other)]) == {}


ENDINGS = st.dictionaries(st.integers(0, 31), st.sampled_from([*map(str, Ending)]))


@given(left=ENDINGS, right=ENDINGS)
def test_every_common_sample_is_in_one_cell_and_the_way_back_is_the_same_table_turned(
    left: ByContent, right: ByContent
) -> None:
    there, back = count_moves([(left, right)]), count_moves([(right, left)])
    cells = {(was, now): n for was, row in there.items() for now, n in row.items()}
    assert sum(cells.values()) == len(left.keys() & right.keys())
    assert cells == {(was, now): n for now, row in back.items() for was, n in row.items()}
    assert count_moves([(left, left)]) == {each: {each: n} for each, n in sort_counts(Counter(left.values())).items()}


def test_contamination_is_counted_by_item_and_accuracy_is_given_with_and_without() -> None:
    figures = contamination(
        *(ended(0, "correct", repeat=repeat, correct=True, duplicates=2) for repeat in (0, 1)),
        ended(1, "logic", correct=False),
        ended(2, "correct", correct=True),
        ended(3, "failed", state="failed"),
        ended(4, None, state="cancelled"),
    )
    assert figures is not None
    assert (figures.items, figures.affected, figures.documents, figures.share) == (4, 1, 2, 0.25)
    assert (figures.among.correct, figures.among.graded) == (2, 2)
    assert (figures.others.correct, figures.others.graded, figures.others.value) == (1, 2, 0.5)
    assert (figures.among.low, figures.others.low) == (wilson(1, 1).low, wilson(1, 2).low)


def test_a_job_that_met_no_near_duplicate_reports_none() -> None:
    assert contamination(ended(0, "correct", correct=True)) is None
    assert contamination() is None


def test_disagreements_need_two_verdicts_and_the_first_are_listed() -> None:
    differing = [ended(n, "ungraded", correct=False, strict=True, answer="1/2", gold="0.5") for n in range(MOST)]
    others = [sample(90, correct=True, strict=True), sample(91, correct=True), sample(92, strict=True)]
    made = Disagreements()
    made.add((row, None) for row in [*others, *differing[:5]])
    made.add((row, None) for row in [*differing[5:], sample(99, correct=True, strict=False)])
    assert [each.index for each in made.first] == list(range(MOST))
    assert (made.first[0].answer, made.first[0].gold) == ("1/2", "0.5")
    assert (made.first[0].math_verify, made.first[0].strict) == (False, True)


def test_a_report_for_people_lists_the_answers_that_the_graders_differ_on(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(make_example("Report", disagreements=3))
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if line.split()[:1] == ["17"])
    assert line.split() == ["17", "0", "0.5", r"\frac{2}{4}", "correct", "wrong"]
    assert "2 more: mathrag sample list JOB --differing" in said
    assert "  endings         correct 305, truncated 2, extraction 1, arithmetic 61, logic 131" in said


# What labels say together: majority, ties, abstentions, and when there is no figure.

Votes = dict[int, dict[str, Value | None]]


def said(
    votes: Votes,
    system: list[Value],
    what: What = "documents",
    scores: dict[int, JudgeScore] | None = None,
    items: Sequence[int] = (),
) -> LabelAgreement:
    kind = KINDS[what]
    of = LabelSet(
        id=1, name="set", what=what, job="j", job_name="job", purged=False, seed=0, size=9, eligible=9, hash="",
        tasks=len(system), made_by="ana", created_at=datetime.now(UTC), instructions="", scale=kind.scale,
    )  # fmt: skip
    items = items or range(len(system))
    tasks = [
        SystemRating(number, item, 0, value)
        for number, (item, value) in enumerate(zip(items, system, strict=True), start=1)
    ]
    return compute_agreement(of, CountedLabels(votes, tasks), scores, blind=True, seed=0)


def alone(labels: list[Value | None]) -> Votes:
    return {number: {"ana": label} for number, label in enumerate(labels, start=1)}


def test_the_majority_is_what_most_said() -> None:
    votes: Votes = {
        1: {"ana": 5, "ben": 5, "cem": 1},
        2: {"ana": 5, "ben": 1},
        3: {"ana": 2, "ben": None},
        4: {"ana": None},
    }
    found = said(votes, [5, 5, 5, 5])
    assert (found.majority.compared, found.majority.same, found.majority.abstained) == (2, 1, 1)
    assert (found.ties, found.abstentions, found.labels, found.labelled) == (1, 2, 6, 4)
    assert [(each.labeller, each.compared, each.abstained) for each in found.labellers] == [
        ("ana", 3, 1), ("ben", 2, 1), ("cem", 1, 0),
    ]  # fmt: skip
    assert found.people.tasks == 2


def test_the_confusion_has_labels_in_rows_and_the_judge_in_columns() -> None:
    confusion = said(alone([1, 1, 4]), [2, 2, 5]).majority.confusion
    assert confusion[0] == (0, 2, 0, 0, 0)
    assert confusion[3] == (0, 0, 0, 0, 1)


def test_below_ten_tasks_there_is_no_figure() -> None:
    few = said(alone([1, 5] * 4 + [1]), [1, 5] * 4 + [1])
    assert few.majority.kappa.value is None
    assert few.with_system.interval.value is None
    assert few.majority.note == "9 tasks have a label and the judge's rating: figures of agreement begin at 10"
    enough = said(alone([1, 5] * 5), [1, 5] * 5)
    assert enough.majority.kappa.value == enough.with_system.nominal.value == 1.0
    assert enough.majority.note is None
    assert enough.majority.compared == FEWEST


def test_where_everybody_always_says_the_same_there_is_no_figure() -> None:
    found = said(alone([3] * 12), [3] * 12)
    assert found.majority.kappa.value is None
    assert "the labels say the same of all" in (found.majority.note or "")
    assert "chance alone" in (found.with_system.note or "")
    assert found.words.startswith("People and the judge say the same of 12 of 12 documents; ")


def test_a_judge_that_always_says_the_same_has_no_kappa() -> None:
    found = said(alone([1, 2, 3] * 4), [3] * 12)
    assert found.majority.kappa.value is None
    assert "the judge says the same of all" in (found.majority.note or "")
    assert found.with_system.interval.value is not None


def test_kappa_of_answers_is_unweighted_and_of_ratings_weighted() -> None:
    rated = said(alone([1, 2, 3, 4, 5] * 4), [2, 2, 3, 4, 4] * 4)
    assert rated.majority.weighted_kappa.value == pytest.approx(1 - 0.4 / 2.8)
    assert "weighted kappa 0.86" in rated.words
    answers = said(alone(["right", "wrong", "tie", "right"] * 5), ["right", "wrong", "wrong", "wrong"] * 5, "answers")
    assert "; kappa 0.27" in answers.words
    assert "the grader" in answers.words


def test_what_differs_most_comes_first() -> None:
    votes = alone([1, 3, 5, None])
    votes[5] = {"ana": 1, "ben": 2}
    found = said(votes, [2, 3, 1, 5, 5])
    assert [(each.number, each.label, each.system) for each in found.disagreements] == [(3, 5, 1), (1, 1, 2)]


# The mean of a metric, corrected by people's labels of some of its questions.


def test_the_corrected_mean_is_the_judge_s_mean_plus_the_mean_difference() -> None:
    scores = {item: JudgeScore(value, 1.0) for item, value in enumerate([1.0, 0.8, 1.0, 0.6, 0.6])}
    found = estimate_corrected_mean(scores, {0: -0.2, 1: 0.0, 2: -0.2, 3: 0.0}, seed=0)
    assert found is not None
    assert found.value == pytest.approx(0.7)
    assert found.low < 0.7 < found.high


def test_the_interval_covers_the_truth_of_a_judge_that_is_too_kind() -> None:
    """200 jobs of 400 questions: of those that people deny, the judge believes 30 %; 80 questions are labelled."""
    rng = np.random.default_rng(1)
    covered, widths = 0, []
    for _ in range(200):
        people = rng.random(400) < 0.6
        judge = people | (rng.random(400) < 0.3)
        scores = {item: JudgeScore(float(value), 1.0) for item, value in enumerate(judge)}
        differences = {item: float(people[item]) - float(judge[item]) for item in range(80)}
        found = estimate_corrected_mean(scores, differences, seed=0)
        assert found is not None
        covered += found.low <= 0.6 <= found.high
        widths.append(found.high - found.low)
    assert 180 <= covered <= 198
    assert sum(widths) / 200 < 2 * 1.96 * (0.6 * 0.4 / 80) ** 0.5  # narrower than by the 80 labels alone


def test_other_seeds_give_other_intervals_of_one_mean() -> None:
    scores = {item: JudgeScore(item % 7 / 7, 1.0) for item in range(90)}
    one, two = (
        estimate_corrected_mean(scores, {item: item % 3 / -9 for item in range(40)}, seed=seed) for seed in (0, 1)
    )
    assert one is not None
    assert two is not None
    assert one.value == two.value
    assert (one.low, one.high) != (two.low, two.high)


def test_scores_that_no_label_decided_are_not_corrected() -> None:
    scores = {item: JudgeScore(1.0, 1.0) if item < 30 else JudgeScore(0.0, 0.0) for item in range(60)}
    found = estimate_corrected_mean(scores, dict.fromkeys(range(30), -1.0), seed=0)
    assert found == Interval(value=0.0, low=0.0, high=0.0)


@pytest.mark.parametrize(
    ("what", "worth"),
    [("support", [0, 0, 1]), ("sufficient", [0, 0, 1]), ("addresses", [0, 0, 0.5, 1])],
)
def test_people_s_score_of_a_question_is_computed_as_the_metric_computes_it(what: What, worth: list[float]) -> None:
    scale = KINDS[what].scale
    for at, value in enumerate(scale):
        system = [scale[0]] * 30
        scores = {item: JudgeScore(0.0, 1.0) for item in range(30)}
        found = said(alone([value] * 30), system, what, scores).corrected
        assert found is not None
        assert found.corrected is not None
        assert (found.difference, found.corrected.value) == (worth[at], worth[at])


def test_fewer_than_thirty_labelled_questions_correct_nothing() -> None:
    scores = {item: JudgeScore(1.0, 1.0) for item in range(30)}
    found = said(alone([1] * 29 + [None]), [3] * 30, "sufficient", scores).corrected
    assert found is not None
    assert (found.labelled, found.judge, found.difference, found.corrected) == (29, 1.0, -1.0, None)
    assert found.words.endswith("29 questions are labelled completely, and a corrected mean needs 30")
    assert said(alone([1] * 30), [3] * 30, "sufficient", None).corrected == CorrectedMean(
        metric="context_sufficiency", judge=None, questions=0, labelled=30, difference=-1.0, corrected=None,
        words="The job was purged, so the mean of context_sufficiency is not known and cannot be corrected",
    )  # fmt: skip
    assert said(alone([1] * 30), [3] * 30).corrected is None


def test_a_question_counts_if_each_sentence_of_its_reply_has_a_majority() -> None:
    votes = alone([3, 1, 3, 3])
    votes[2] = {"ana": 3, "ben": 1}
    scores = {0: JudgeScore(0.5, 1.0), 1: JudgeScore(1.0, 1.0)}
    found = said(votes, [3, 2, 3, 3], "support", scores, items=[0, 0, 1, 1]).corrected
    assert found is not None
    assert (found.labelled, found.difference) == (1, 0.0)
    votes[2] = {"ana": 3, "ben": 1, "cem": 3}
    found = said(votes, [3, 2, 3, 1], "support", scores, items=[0, 0, 1, 1]).corrected
    assert found is not None
    assert (found.labelled, found.difference) == (2, 0.5)


# Whether the judge says the same again: which calls belong together, and what they add up to.


def asked(document: str, draw: int, rating: int | None, question: str | None = None) -> tuple[Request, Reply]:
    values: dict[str, Any] = {"document": DocumentRef(document)} | ({"question": question} if question else {})
    reply = Failure(kind=FailureKind.UNPARSED) if rating is None else Rated(rating=rating, text=f"[[{rating}]]")
    return Request(role="judge", model="m", template="t", values=values, draw=draw), reply


def figures(*calls: tuple[Request, Reply]) -> Repeatability | None:
    ratings = Ratings()
    ratings.add(calls)
    return ratings.figures(0.1)


def test_ratings_of_one_document_by_several_draws_are_compared() -> None:
    found = figures(
        asked("a", 0, 4), asked("a", 1, 4), asked("b", 0, 2), asked("b", 1, 3), asked("c", 0, 5)
    )  # fmt: skip
    assert found is not None
    assert (found.documents, found.draws, found.temperature) == (2, 2, 0.1)
    assert found.same == wilson(1, 2)
    assert (found.agreement, found.difference, found.unrated) == (0.5, 0.5, 0)
    assert (found.table[3][3], found.table[1][2], sum(map(sum, found.table))) == (1, 1, 2)
    assert found.kappa == 1 - 2 * 1 / (4 + 0 + 1 + 1)


def test_three_draws_make_three_pairs_each_document_counting_once() -> None:
    found = figures(
        *(asked("a", draw, rating) for draw, rating in enumerate((1, 1, 3))), asked("b", 0, 2), asked("b", 1, 2)
    )
    assert found is not None
    assert found.agreement == pytest.approx((1 / 3 + 1) / 2)
    assert found.difference == pytest.approx((4 / 3 + 0) / 2)
    assert (found.same.value, found.draws) == (0.5, 3)


def test_another_question_is_another_rating() -> None:
    assert figures(asked("a", 0, 1, "x"), asked("a", 0, 5, "y")) is None


def test_a_reply_without_a_rating_is_counted_and_is_no_rating() -> None:
    found = figures(asked("a", 0, None), asked("a", 1, 3), asked("a", 2, 3), asked("b", 0, 2), asked("b", 1, None))
    assert found is not None
    assert (found.unrated, found.documents, found.agreement) == (2, 1, 1.0)
    nothing = figures(asked("b", 0, 2), asked("b", 1, None))
    assert nothing is not None
    assert (nothing.documents, nothing.same.value, nothing.agreement, nothing.kappa) == (0, None, None, None)


def test_the_order_of_the_calls_does_not_matter() -> None:
    calls = [asked(f"d{n}", draw, 1 + (n * 7 + draw * n) % 5) for n in range(20) for draw in range(3)]
    assert figures(*calls) == figures(*calls[::-1]) == figures(*calls[::2], *calls[1::2])


def test_a_judge_that_repeats_itself_is_at_one() -> None:
    sure = figures(*(asked(f"d{n}", draw, 1 + n % 5) for n in range(50) for draw in (0, 1)))
    dice = Random(1)  # noqa: S311 - a test's draws
    lots = figures(*(asked(f"d{n}", draw, dice.randint(1, 5)) for n in range(2000) for draw in (0, 1)))
    assert sure is not None
    assert lots is not None
    assert (sure.same.value, sure.kappa, sure.difference) == (1.0, 1.0, 0.0)
    assert abs(lots.kappa or 0) < 0.1


def test_a_person_reads_how_often_and_how_far() -> None:
    same = {"value": 0.931, "low": 0.887, "high": 0.959}
    found = {"same": same, "documents": 200, "difference": 0.08, "kappa": 0.9, "temperature": 0.1}
    assert describe_repeatability(found) == (
        "the same rating for 93.1 % (88.7 to 95.9) of 200 documents, 0.08 steps apart, kappa 0.900; temperature 0.1"
    )
    assert describe_repeatability(None) is None
    assert describe_repeatability({**found, "same": {**same, "value": None}}) is None


# How often answers occur in what was found, as a report has it.


def found(*ranks: int | msgspec.UnsetType | None, candidates: int = 10, repeats: int = 1) -> AnswersFound:
    counted = AnswersFound()
    counted.add(outcome(place // repeats, rank, candidates) for place, rank in enumerate(ranks))
    return counted


def outcome(index: int, rank: int | msgspec.UnsetType | None, candidates: int) -> SampleWithOutcome:
    trace = Trace(candidates=tuple(Candidate(document=str(n), rank=n) for n in range(1, candidates + 1)))
    return sample(index), Outcome(answer=None, extraction=Extraction.MISSING, trace=trace, answer_rank=rank)


def test_the_share_of_samples_with_an_answer_has_wilsons_and_a_bootstrapped_interval() -> None:
    figures = found(1, 4, 7, None, msgspec.UNSET).figures()
    assert {name: (each.correct, each.graded) for name, each in figures.items()} == {
        "answer@1": (1, 4), "answer@5": (2, 4), "answer@10": (3, 4),
    }  # fmt: skip
    at_five, interval = figures["answer@5"], wilson(2, 4)
    assert (at_five.value, at_five.low, at_five.high) == (0.5, interval.low, interval.high)
    assert at_five.bootstrap is not None
    assert at_five.bootstrap.low < 0.5 < at_five.bootstrap.high


def test_no_more_documents_are_reported_than_were_found() -> None:
    assert list(found(1, None, candidates=5).figures()) == ["answer@1", "answer@5"]
    assert list(found(None, candidates=0).figures()) == ["answer@1"]


def test_what_was_not_measured_is_in_no_report() -> None:
    assert found(msgspec.UNSET, msgspec.UNSET).figures() == {}


def test_repeats_of_an_item_do_not_narrow_the_interval_of_answers_found() -> None:
    once, often = (
        found(1, None).figures()["answer@1"],
        found(1, 1, 1, None, None, None, repeats=3).figures()["answer@1"],
    )
    assert (often.low, often.high) == (once.low, once.high)


def test_the_interval_of_a_rating_leaves_no_rating_out() -> None:
    ratings = Scores()
    ratings.add((sample(place, score=rating), None) for place, rating in enumerate((3.0, 4.0, 4.0, 5.0)))
    figures = ratings.figures("rubric")
    assert figures is not None
    assert figures.mean.value is not None
    assert figures.mean.high is not None
    assert figures.mean.value < figures.mean.high <= 5


# Metrics: means over items, what could not be measured, controls, and what a reader is warned of.


def scored(
    index: int, score: MetricScore, control: ControlScore | None = None, *, repeat: int = 0, correct: bool | None = None
) -> SampleWithOutcome:
    controls = msgspec.UNSET if control is None else {"faithfulness": control}
    outcome = Outcome(answer="a", extraction=Extraction.OK, metrics={"faithfulness": score}, controls=controls)
    return sample(index, repeat=repeat, correct=correct), outcome


def measured_by(*samples: SampleWithOutcome) -> MetricFigures:
    counted = Metrics()
    counted.add(samples)
    return counted.figures()["faithfulness"]


def labelled(value: float, label: int = 3) -> MetricScore:
    return MetricScore(value=value, parts=(JudgedPart(text="s", label=label),))


def warnings_of(*samples: SampleWithOutcome, grader: str = "text", same: bool = False) -> list[str]:
    pins = {"judge": Pin(model_id=1, hash="a"), "generate": Pin(model_id=2, hash="a" if same else "b")}
    return list_metric_warnings({"faithfulness": measured_by(*samples)}, grader, pins)


def test_a_metric_is_a_mean_over_items_with_bounds_for_what_failed() -> None:
    figures = measured_by(
        scored(0, MetricScore(value=0.75)),
        scored(1, MetricScore(not_applicable="the reply declines to answer")),
        scored(2, MetricScore(failures={"unparsed": 1}, low=2 / 3, high=1.0)),
        scored(3, MetricScore(value=1.0)),
    )
    assert (figures.mean.value, figures.mean.n, figures.measured, figures.failed) == (0.875, 2, 3 - 1, 1)
    assert figures.not_applicable == {"the reply declines to answer": 1}
    assert figures.failures == {"unparsed": 1}
    assert (figures.worst, figures.best) == (pytest.approx(0.8056, abs=1e-4), pytest.approx(0.9167, abs=1e-4))


def test_repeats_of_an_item_count_as_one() -> None:
    right, wrong = MetricScore(value=1.0), MetricScore(value=0.0)
    figures = measured_by(scored(0, wrong), scored(0, right, repeat=1), scored(1, right))
    assert (figures.mean.value, figures.mean.n, figures.worst) == (0.75, 2, None)


def test_means_are_given_by_language_where_questions_have_two() -> None:
    def asked(question: str, index: int, value: float) -> SampleWithOutcome:
        row, outcome = scored(index, MetricScore(value=value))
        return msgspec.structs.replace(row, question=question), outcome

    english, chinese = asked("What is it?", 0, 0.5), asked("这是什么？", 1, 1.0)
    figures = measured_by(english, chinese, asked("Who was it?", 2, 0.0))
    assert {language: (mean.value, mean.n) for language, mean in figures.languages.items()} == {
        "en": (0.25, 2),
        "zh": (1.0, 1),
    }
    assert measured_by(english).languages == {}


def test_auroc_says_how_often_a_right_answer_scores_higher() -> None:
    figures = measured_by(
        scored(0, MetricScore(value=1.0), correct=True),
        scored(1, MetricScore(value=0.5), correct=True),
        scored(2, MetricScore(value=0.5), correct=False),
        scored(3, MetricScore(value=0.0), correct=None),
    )
    assert figures.auroc == 0.75
    assert measured_by(scored(0, MetricScore(value=1.0), correct=True)).auroc is None


def test_a_judge_that_does_not_tell_material_apart_is_warned_of() -> None:
    same = [scored(n, labelled(0.9), ControlScore(swapped=0.85, copied=0.5)) for n in range(5)]
    copied, swapped = warnings_of(*same)
    assert copied == "faithfulness: the judge model finds only 50 % of documents to say what their own sentence says"
    assert swapped.startswith("faithfulness: the score is 0.90, and 0.85 with material of other items: the judge")
    apart = [scored(n, labelled(0.9), ControlScore(swapped=0.1, copied=1.0)) for n in range(30)]
    assert warnings_of(*apart) == []


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([scored(n, labelled(1.0)) for n in range(20)], "20 of 20 labels are 3"),
        ([scored(n, labelled(1.0, n % 3)) for n in range(20)], None),
        ([scored(0, MetricScore(failures={"unparsed": 1}, low=0.0, high=1.0))], "1 answer of 1 could not be measured"),
    ],
)
def test_without_controls_one_label_for_all_and_many_failures_are_warned_of(
    samples: list[SampleWithOutcome], said: str | None
) -> None:
    found = warnings_of(*samples)
    assert [said in note for note in found if said] == ([True] if said else [])
    assert (said is None) == (found == [])


def test_a_judge_that_is_the_generator_and_mathematics_are_warned_of() -> None:
    one = scored(0, MetricScore(value=1.0))
    assert "the judge model of the metrics is the generator" in warnings_of(one, same=True)[0]
    assert "faithfulness means little in mathematics" in warnings_of(one, grader="math")[0]


def test_answers_are_counted_by_sufficiency_and_ending() -> None:
    counted = Metrics()
    for value, declined, correct in ((1.0, 0.0, True), (1.0, 0.0, False), (0.0, 1.0, False), (0.0, 0.0, None)):
        scores = {"context_sufficiency": MetricScore(value=value), "declined": MetricScore(value=declined)}
        outcome = Outcome(answer="a", extraction=Extraction.OK, metrics=scores)
        counted.add([(sample(correct=correct), outcome)])
    assert counted.sufficiency() == {
        "insufficient": {"declined": 1, "ungraded": 1},
        "sufficient": {"correct": 1, "wrong": 1},
    }
