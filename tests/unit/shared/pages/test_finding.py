"""The headline of a job's report."""

from typing import Any

import pytest

from shared.pages.formatting import explain_missing_answers, format_accuracy, format_headline
from shared.pages.lines import describe_repeats

GRADED = {"value": 0.61, "low": 0.567, "high": 0.652, "items": 500, "correct": 305, "graded": 500}
REPEATED = {"value": 0.25, "low": 0.142, "high": 0.402, "items": 40, "correct": 50, "graded": 80}
WRONG = {"value": 0.0, "low": 0.0, "high": 0.088, "items": 40, "correct": 0, "graded": 40}


@pytest.mark.parametrize(
    ("accuracy", "failed", "said"),
    [
        (GRADED, 0, "61.0 % right (56.7 to 65.2), 305 of 500"),
        (GRADED, 3, "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"),
        ({**GRADED, "value": None, "graded": 0}, 7, "Nothing was graded; 7 failed"),
        (REPEATED, 0, "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers"),
        (REPEATED, 2, "25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers; 2 failed"),
    ],
)
def test_a_report_begins_with_what_was_found(accuracy: Any, failed: int, said: str) -> None:
    report = {"accuracy": accuracy, "extraction": {"ok": 500}, "request_counts": {"failed": failed}}
    assert format_headline(report) == said


def test_one_item_is_not_several() -> None:
    assert format_accuracy({**REPEATED, "items": 1, "graded": 3}).endswith(", mean of 1 item, 3 answers")


def test_a_server_of_an_earlier_release_counts_no_items() -> None:
    figure = {name: value for name, value in GRADED.items() if name != "items"}
    assert format_accuracy(figure) == "61.0 % (56.7 to 65.2), 305 of 500"


@pytest.mark.parametrize(
    ("extraction", "counts", "how_much"),
    [
        ({"missing": 40}, "40 of 40", "nothing"),
        ({"missing": 20, "unbalanced": 1, "ok": 19}, "21 of 40", "little"),
        ({"unbalanced": 30, "ok": 10}, "30 of 40", "little"),
        ({"missing": 3, "ok": 2, "refused": 35}, "3 of 5", "little"),
        ({"missing": 1, "only_reasoning": 1, "empty": 1}, "2 of 3", "little"),
    ],
)
@pytest.mark.parametrize(("failed", "troubles"), [(0, ""), (3, "; 3 failed")])
def test_a_report_of_answers_that_could_not_be_read_says_so_first(
    extraction: dict[str, int], counts: str, how_much: str, failed: int, troubles: str
) -> None:
    found = format_headline({"accuracy": WRONG, "extraction": extraction, "request_counts": {"failed": failed}})
    assert found == (
        f"In {counts} answers no final answer could be found, so 0.0 % says {how_much} about the system"
        f"{troubles}. Choose another grader; an import can also give the final answers themselves, as `answer`."
    )


@pytest.mark.parametrize(
    "extraction",
    [{}, {"ok": 40}, {"ok": 20, "missing": 20}, {"ok": 20, "missing": 15, "unbalanced": 5}, {"refused": 40},
     {"ok": 5, "missing": 4, "refused": 31}],
)  # fmt: skip
def test_a_few_answers_without_a_final_one_change_no_headline(extraction: dict[str, int]) -> None:
    report = {"accuracy": WRONG, "extraction": extraction, "request_counts": {"failed": 0}}
    assert format_headline(report) == "0.0 % right (0.0 to 8.8), 0 of 40"


def test_nothing_that_was_graded_says_nothing_anyway() -> None:
    assert explain_missing_answers({"missing": 40}, {**WRONG, "value": None}) is None


@pytest.mark.parametrize(
    ("items", "over"), [(40, ""), (10, "; over the 10 of 40 items with a verdict in every repeat")]
)
def test_repeats_say_over_which_items_they_are(items: int, over: str) -> None:
    repeats = {"accuracies": [0.5, 0.5], "items": items, "mean": 0.5, "std": 0.0}
    assert describe_repeats(repeats, REPEATED) == f"50.00 %, std 0.00 [by repeat 50.0, 50.0{over}; not an interval]"
