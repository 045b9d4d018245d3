"""What somebody probably meant is said, and nothing where that cannot be known."""

import pytest

from shared import suggestions

KNOWN = ("hybrid", "dense", "sparse", "mathrag-gate")


@pytest.mark.parametrize(
    ("written", "meant"), [("hybird", "hybrid"), ("HYBRID", "hybrid"), ("mathrag_gate", "mathrag-gate"), ("xyz", None)]
)
def test_the_nearest_name_is_found_whatever_its_case(written: str, meant: str | None) -> None:
    assert suggestions.find_nearest(written, KNOWN) == meant


def test_a_hint_says_in_any_case_where_all_names_are() -> None:
    assert suggestions.make_hint("hybird", KNOWN, "mathrag pipeline list") == (
        "did you mean 'hybrid'? Otherwise: mathrag pipeline list"
    )
    assert suggestions.make_hint("xyz", KNOWN, "mathrag pipeline list") == "mathrag pipeline list"
