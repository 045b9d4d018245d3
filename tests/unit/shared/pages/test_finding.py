"""The headline of a job's report."""

from typing import Any

import pytest

from shared.pages.formatting import format_headline

GRADED = {"value": 0.61, "low": 0.567, "high": 0.652, "correct": 305, "graded": 500}


@pytest.mark.parametrize(
    ("accuracy", "failed", "said"),
    [
        (GRADED, 0, "61.0 % right (56.7 to 65.2), 305 of 500"),
        (GRADED, 3, "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"),
        ({**GRADED, "value": None, "graded": 0}, 7, "Nothing was graded; 7 failed"),
    ],
)
def test_a_report_begins_with_what_was_found(accuracy: Any, failed: int, said: str) -> None:
    """Failed samples are in no accuracy, so they are said beside it."""
    assert format_headline({"accuracy": accuracy, "request_counts": {"failed": failed}}) == said
