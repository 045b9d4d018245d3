"""Whole numbers are read without typer's converter; what it refuses is refused all the same."""

import pytest

from mathrag.cli.output import Exit
from tests.unit.commands import mathrag


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "greater than or equal to 1"),
        ("-3", "greater than or equal to 1"),
        ("x", "valid integer"),
        ("1.5", "integer"),
    ],
)
def test_a_number_that_an_option_does_not_take_is_refused(value: str, words: str) -> None:
    ended = mathrag("plan", "--dataset", "d", "--limit", value)
    assert ended.exit_code == Exit.USAGE
    assert words in " ".join(ended.output.replace("│", " ").split())
