"""Counts with their nouns."""

import pytest

from shared.messages import format_count


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("cell",), "0 cells"),
        (1, ("cell",), "1 cell"),
        (2, ("cell",), "2 cells"),
        (1, ("line was", "lines were"), "1 line was"),
        (3, ("line was", "lines were"), "3 lines were"),
    ],
)
def test_only_one_takes_the_singular(count: int, words: tuple[str, ...], said: str) -> None:
    assert format_count(count, *words) == said
