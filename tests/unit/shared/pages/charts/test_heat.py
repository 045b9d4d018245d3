"""Grids of figures: shades, missing cells, and texts that do not act."""

import re

from shared.pages.charts import HeatCell, draw_heat_table
from shared.pages.plots import SHADES, compute_shade


def cells(drawn: str) -> list[tuple[str, str]]:
    return [
        (kind, re.sub(r"<[^>]+>", "", words)) for kind, words in re.findall(r'<td class="([\w-]+)">(.*?)</td>', drawn)
    ]


def test_every_place_of_the_grid_has_a_cell() -> None:
    figures = {
        ("1", "a"): HeatCell(0.2, "20.0", "4 to 62", "/jobs/x"), ("2", "a"): HeatCell(0.6, "60.0"),
        ("1", "b"): HeatCell(None, "refused"),
    }  # fmt: skip
    drawn = draw_heat_table(figures, ("k", ["1", "2"]), ("variant", ["a", "b"]), caption="seed 0", low=0.2, high=0.6)
    assert cells(drawn) == [
        ("heat-0", "20.04 to 62"),
        (f"heat-{SHADES}", "60.0"),
        ("missing", "refused"),
        ("missing", "–"),
    ]
    assert '<a href="/jobs/x">20.0</a>' in drawn
    assert drawn.count('scope="row"') == 2
    assert drawn.count('scope="col"') == 3


def test_one_figure_everywhere_is_in_the_middle_of_the_scale() -> None:
    assert compute_shade(0.4, 0.4, 0.4) == SHADES // 2
    assert [compute_shade(value, 0.0, 0.8) for value in (-1, 0.0, 0.4, 0.8, 2)] == [0, 0, 4, 8, 8]


def test_hostile_values_and_names_are_text() -> None:
    hostile = '<script>"\u202e'
    axis = (hostile, [hostile])
    drawn = draw_heat_table({(hostile, hostile): HeatCell(0.5, hostile)}, axis, axis, caption=hostile, low=0, high=1)
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
    assert drawn.count("U+202E") == 6
