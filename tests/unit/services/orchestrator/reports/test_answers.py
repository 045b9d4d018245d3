"""How often answers occur in what was found, as a report has it."""

import msgspec

from services.orchestrator.reports.report import AnswersFound, Scores
from shared.samples import Candidate, Extraction, Outcome, Trace
from shared.statistics.intervals import wilson
from shared.storage.samples import SampleWithOutcome
from tests.unit.services.orchestrator.test_report import sample


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
