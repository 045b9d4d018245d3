"""Lines along a parameter: where figures stand, and what is said of them."""

import re

from shared.pages.charts import POINTS_BOTTOM, POINTS_HEIGHT, POINTS_TOP, IntervalPoint, draw_points
from shared.pages.plots import SERIES


def test_a_higher_figure_stands_higher_and_its_interval_around_it() -> None:
    drawn = draw_points(
        {"dense": {"1": IntervalPoint(0.42, 0.41, 0.5), "2": IntervalPoint(0.6, 0.42, 0.6)}}, "k", ["1", "2"]
    )
    assert re.search(r'aria-label="dense along k, from 40 to 60 %"', drawn)
    first, second = [float(y) for y in re.findall(r'cy="([\d.]+)" r="3.5"', drawn)]
    assert second == POINTS_TOP < first < POINTS_HEIGHT - POINTS_BOTTOM
    assert 'points="' in drawn


def test_values_without_a_figure_have_no_dot() -> None:
    drawn = draw_points({"a": {"1": IntervalPoint(0.5, 0.4, 0.6)}, "b": {}}, "k", ["1", "2"])
    assert len(re.findall(r'r="3.5"', drawn)) == 1
    assert 'role="img"' in draw_points({"a": {}}, "k", ["1"])


def test_no_more_lines_are_drawn_than_there_are_colours() -> None:
    drawn = draw_points({f"v{n}": {"1": IntervalPoint(0.5, 0.4, 0.6)} for n in range(SERIES + 2)}, "k", ["1"])
    assert len(re.findall(r"<polyline", drawn)) == SERIES
    assert f"v{SERIES}" not in drawn


def test_hostile_names_are_text() -> None:
    hostile = '"><script>\u202e'
    drawn = draw_points({hostile: {hostile: IntervalPoint(0.5, 0.4, 0.6)}}, hostile, [hostile])
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
