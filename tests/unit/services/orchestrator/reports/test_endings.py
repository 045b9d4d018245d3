"""Endings side by side, near-duplicates and what they are worth, and answers that the graders differ on."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.job import print_report
from services.orchestrator.reports import EXAMPLE
from services.orchestrator.reports.report import MOST, Contaminated, Contamination, Disagreements
from services.orchestrator.reports.tally import ByContent, Endings, count_moves, index_by_content, sort_counts
from shared.rag.provenance import Ending
from shared.samples import SampleRow
from shared.statistics.intervals import wilson
from tests.unit.services.orchestrator.test_report import sample


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
    left = {(1, 0): "logic", (2, 0): "logic", (3, 0): "correct", (4, 0): "logic"}
    right = {(1, 0): "correct", (2, 0): "logic", (3, 0): "arithmetic", (5, 0): "correct"}
    assert count_moves([(left, right)]) == {"correct": {"arithmetic": 1}, "logic": {"correct": 1, "logic": 1}}
    assert count_moves([(left, right), (left, left)])["logic"] == {"correct": 1, "logic": 4}
    assert count_moves([]) == {}


def test_samples_are_matched_by_what_was_asked() -> None:
    here = index_by_content([(ended(0, "logic", question="a", gold="1"), None), (ended(1, None, question="b"), None)])
    there = index_by_content([(ended(7, "correct", question="a", gold="1"), None)])
    other = index_by_content([(ended(7, "correct", question="a", gold="2"), None)])
    assert count_moves([(here, there)]) == {"logic": {"correct": 1}}
    assert count_moves([(here, other)]) == {}


ENDINGS = st.dictionaries(st.tuples(st.integers(0, 15), st.integers(0, 1)), st.sampled_from([*map(str, Ending)]))


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
    print_report({**EXAMPLE, "disagreements": 3})
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if line.split()[:1] == ["17"])
    assert line.split() == ["17", "0", "0.5", r"\frac{2}{4}", "correct", "wrong"]
    assert "2 more: mathrag sample list JOB --differing" in said
    assert "  endings         correct 305, truncated 2, extraction 1, arithmetic 61, logic 131" in said
