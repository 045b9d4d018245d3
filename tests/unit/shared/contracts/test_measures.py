"""Measures by name, and what a sample is worth by each."""

import msgspec
import pytest

from shared.replies import Graded, Marked
from shared.shapes import Measured, find_measure

UNSET = msgspec.UNSET


@pytest.mark.parametrize(
    "name", ["", "recall", "Accuracy", "answer@0", "answer@01", "answer@1001", "answer@-1", "answer@"]
)
def test_an_unknown_measure_is_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(LookupError, match="accuracy, exact, score, answer@K with K from 1 to 1000"):
        find_measure(name)


@pytest.mark.parametrize(
    ("name", "verdict", "value"),
    [
        ("accuracy", Marked(correct=True, strict=False, score=0.5), 1.0),
        ("exact", Marked(correct=True, strict=False, score=0.5), 0.0),
        ("score", Marked(correct=True, strict=False, score=0.5), 0.5),
        ("exact", Marked(correct=True), None),
        ("score", Marked(correct=True), None),
        ("score", Graded(math_verify=True, strict=True), None),
        ("exact", Graded(math_verify=False, strict=True), 1.0),
        ("accuracy", Graded(math_verify=None, strict=True), None),
        ("accuracy", None, None),
        ("exact", None, None),
    ],
)
def test_a_verdict_is_worth_what_the_measure_reads_of_it(
    name: str, verdict: Graded | Marked | None, value: float | None
) -> None:
    assert find_measure(name).value(Measured(verdict=verdict)) == value


@pytest.mark.parametrize(
    ("rank", "values"), [(1, (1, 1, 1)), (5, (0, 1, 1)), (6, (0, 0, 1)), (None, (0, 0, 0)), (UNSET, (None,) * 3)]
)
def test_an_answer_counts_within_the_first_k(rank: int | msgspec.UnsetType | None, values: tuple[object, ...]) -> None:
    measured = Measured(verdict=Marked(correct=True), answer_rank=rank)
    assert tuple(find_measure(f"answer@{k}").value(measured) for k in (1, 5, 1000)) == values
