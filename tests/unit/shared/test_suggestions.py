"""What somebody probably meant is said, and nothing where that cannot be known."""

import pytest

from shared.messages import find_nearest, make_hint

KNOWN = ("hybrid", "dense", "sparse", "mathrag-gate")


@pytest.mark.parametrize(
    ("written", "meant"), [("hybird", "hybrid"), ("HYBRID", "hybrid"), ("mathrag_gate", "mathrag-gate"), ("xyz", None)]
)
def test_the_nearest_name_is_found_whatever_its_case(written: str, meant: str | None) -> None:
    assert find_nearest(written, KNOWN) == meant


def test_a_hint_says_in_any_case_where_all_names_are() -> None:
    assert make_hint("hybird", KNOWN, "mathrag pipeline list") == (
        "did you mean 'hybrid'? Otherwise: mathrag pipeline list"
    )
    assert make_hint("xyz", KNOWN, "mathrag pipeline list") == "mathrag pipeline list"
