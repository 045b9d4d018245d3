"""A slope chart: one line for each thing, from where it stood to where it stands."""

import re
from xml.etree import ElementTree as ET

from shared.pages.charts import Slope, draw_slopes

SLOPES = [Slope("doc-a", 5, 1, strong=True, marked=True), Slope("doc-b", 1, 2), Slope("doc-c", 7, 7)]


def test_lines_rise_fall_or_stay() -> None:
    drawn = str(draw_slopes(SLOPES, "found", "reranked"))
    assert re.findall(r'<g class="([a-z ]+)">', drawn) == ["up strong", "down", "same"]
    heights = {float(y): x for x, y in re.findall(r'x="(\d+)" y="(\d+)"', drawn)}
    assert len(heights) == 1 + len(SLOPES)
    (rising, *_) = re.findall(r'y1="(\d+)" x2="\d+" y2="(\d+)"', drawn)
    assert int(rising[0]) > int(rising[1])


def test_who_cannot_see_it_hears_the_ranks() -> None:
    assert 'aria-label="Ranks: doc-a from 5 to 1, doc-b from 1 to 2, doc-c from 7 to 7"' in draw_slopes(
        SLOPES, "a", "b"
    )


def test_a_hostile_name_stays_a_name() -> None:
    drawn = str(draw_slopes([Slope('<script>"&\u202e' + "x" * 100, 1, 1)], "a", "b"))
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
    assert "x" * 20 not in drawn
    ET.fromstring(drawn)  # noqa: S314 - our own markup
