"""Flips in words."""

from typing import Any

import pytest

from shared.lease import policy
from shared.pages import formatting, lines


def waiting(**fields: Any) -> dict[str, Any]:
    return {"models": ["b"], "waiting": 500, "left": 42, "low_s": 110.0, "high_s": 250.0, **fields}


def test_what_the_next_flip_waits_for_is_said_with_its_time() -> None:
    assert lines.describe_next_flip(waiting()).startswith(
        "42 calls left for the resident models; 500 wait for b: flip in 1.8 to 4.2 min"
    )
    assert "Too few calls" in lines.describe_next_flip(waiting(low_s=None, high_s=None))
    assert lines.describe_next_flip(waiting(left=0)) == "500 wait for b; the flip is due."
    assert lines.describe_next_flip(None) == "No call waits for another model."


def test_every_cause_that_is_decided_on_has_words() -> None:
    assert set(policy.DECIDED) <= lines.CAUSES.keys()
    assert lines.explain_flip({"models": [], "cause": "moon"}) == "nothing, because moon"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (3.6, 4.6, "3.6 to 4.6 s"),
        (80, 100, "80 s to 1.7 min"),
        (125, 125.1, "about 2.1 min"),
        (600, 7200, "10 min to 2 h"),
        (0.2, 12, "0.2 to 12 s"),
    ],
)
def test_times_are_said_in_the_unit_that_is_read_at_once(low: float, high: float, said: str) -> None:
    assert formatting.format_duration_range(low, high) == said
