"""Bars of parts."""

import re

import pytest

from shared.pages.charts import draw_shares


def _drawn(bar: str) -> list[tuple[float, float]]:
    return [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', bar)]


def test_parts_stand_side_by_side_and_fill_the_bar() -> None:
    assert _drawn(draw_shares([1, 3])) == [(0, 25), (25, 75)]


def test_what_is_missing_to_the_whole_stays_empty() -> None:
    assert _drawn(draw_shares([1, 1], whole=4)) == [(0, 25), (25, 25)]


@pytest.mark.parametrize("parts", [[], [0.0, 0.0]])
def test_nothing_is_drawn_of_nothing(parts: list[float]) -> None:
    assert all(width == 0 for _, width in _drawn(draw_shares(parts)))
