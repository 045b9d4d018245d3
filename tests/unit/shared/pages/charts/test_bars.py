"""Bars that fill up."""

import re

from shared.pages.charts import draw_interval, draw_progress


def widths(drawn: str) -> list[float]:
    return [float(width) for width in re.findall(r'width="([\d.]+)"', drawn)]


def test_a_bar_is_as_long_as_the_share_that_is_done() -> None:
    assert widths(draw_progress(30, 40, failed=10)) == [50.0, 25.0]
    assert 'aria-label="30 of 40, 10 failed"' in draw_progress(30, 40, failed=10)


def test_nothing_to_do_is_an_empty_bar() -> None:
    assert widths(draw_progress(0, 0)) == [0.0, 0.0]


def test_an_estimate_stands_within_its_interval() -> None:
    drawn = draw_interval(1.0, 0.5, 1.0)
    assert 'x="50.00" width="50.00"' in drawn
    assert 'x="99.00" width="1"' in drawn
