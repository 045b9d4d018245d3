"""A figure with its interval: where its parts stand."""

import re

import pytest

from shared.pages.charts import draw_whisker


def places(drawn: str) -> list[tuple[str, float, float]]:
    found = re.findall(r'<line class="(\w+)" x1="([\d.]+)%" x2="([\d.]+)%"', drawn)
    return [(name, float(one), float(other)) for name, one, other in found]


def test_a_share_stands_on_a_scale_from_0_to_1() -> None:
    drawn = draw_whisker(0.5, 0.25, 0.75)
    assert places(drawn) == [("axis", 0, 100), ("span", 25, 75)]
    assert re.search(r'cx="50\.00%"', drawn)


def test_a_difference_stands_on_either_side_of_0() -> None:
    assert places(draw_whisker(0.1, -0.1, 0.3, start=-0.4, end=0.4)) == [
        ("axis", 0, 100), ("zero", 50, 50), ("span", pytest.approx(37.5), pytest.approx(87.5)),
    ]  # fmt: skip


def test_nothing_is_drawn_outside_of_the_scale() -> None:
    assert places(draw_whisker(0.5, -3, 3))[-1] == ("span", 0, 100)
