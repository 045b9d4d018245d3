"""Whether the judge says the same again: which calls belong together, and what they add up to."""

from random import Random
from typing import Any

import pytest

from services.orchestrator.reports.repeatability import Ratings, Repeatability
from shared.calls import DocumentRef, Request
from shared.pages.lines import describe_repeatability
from shared.replies import Failure, FailureKind, Rated, Reply
from shared.statistics.intervals import wilson


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
