"""What labels say together: majority, ties, abstentions, and when there is no figure."""

from datetime import UTC, datetime

import pytest

from services.orchestrator.reports.label_agreement import LabelAgreement, compute_agreement
from shared.shapes import FEWEST, KINDS, Value, What
from shared.storage.labels import CountedLabels, LabelSet, SystemRating

Votes = dict[int, dict[str, Value | None]]


def said(votes: Votes, system: list[Value], what: What = "documents") -> LabelAgreement:
    kind = KINDS[what]
    of = LabelSet(
        id=1, name="set", what=what, job="j", job_name="job", purged=False, seed=0, size=9, eligible=9, hash="",
        tasks=len(system), made_by="ana", created_at=datetime.now(UTC), instructions="", scale=kind.scale,
    )  # fmt: skip
    tasks = [SystemRating(number, number - 1, 0, value) for number, value in enumerate(system, start=1)]
    return compute_agreement(of, CountedLabels(votes, tasks), blind=True, seed=0)


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
