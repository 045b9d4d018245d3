"""The common style of all figures: light, with standard fonts, readable without colour, each with its n."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shared.pages.figures import library
from shared.pages.figures.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, VERMILLION, BLACK, YELLOW = "#56b4e9", "#d55e00", "#000000", "#f0e442"
PALETTE = (BLUE, ORANGE, BLACK, SKY, VERMILLION, GREEN, PURPLE, YELLOW)
"""Okabe and Ito's palette for colour-blind readers; neighbours also differ in brightness."""
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "stroke")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2, 1, 2], [10, 4], [1, 3], [3, 1])
GREY, FAINT, INK = "#8a8a8a", "#e4e4e4", "#222222"
RAMP = "cividis"
"""A colour scheme with evenly growing brightness, so that it can be read in grey."""
WIDTH = 460
LINE = 92
"""Characters of a subtitle's line that fit above a plot of this width."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
CONFIG: Mapping[str, Any] = {
    "background": "white",
    "font": FONT,
    "padding": 12,
    "view": {"stroke": None},
    "title": {
        "anchor": "start", "frame": "group", "fontSize": 15, "fontWeight": "bold", "color": INK,
        "subtitleColor": "#4d4d4d", "subtitleFontSize": 11.5, "subtitleLineHeight": 15, "subtitlePadding": 5,
        "offset": 12,
    },
    "axis": {
        "labelFontSize": 11.5, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": INK, "titleColor": INK,
        "gridColor": FAINT, "labelFlush": False, "domainColor": GREY, "tickColor": GREY, "labelLimit": 260,
        "titlePadding": 8,
    },
    "header": {"labelFontSize": 12, "labelFontWeight": "bold", "labelColor": INK, "labelLimit": 420},
    "legend": {
        "labelFontSize": 11.5, "titleFontSize": 11.5, "titleFontWeight": "normal", "labelLimit": 420, "symbolSize": 90,
    },
    "text": {"font": FONT, "fontSize": 11.5, "color": INK},
}  # fmt: skip


def make_figure(name: str, title: str, said: Sequence[str], caption: str, chart: Any, rows: Iterable[Any]) -> Figure:
    """Put `chart` under its title; `said` are the lines of the subtitle, wrapped where they are too long."""
    lines = [line for each in said for line in textwrap.wrap(each, LINE)]
    heading = library.import_altair().TitleParams(textwrap.wrap(title, LINE * 3 // 4), subtitle=lines)
    finished = chart.properties(title=heading, description=f"{title}. {caption}")
    spec = {**finished.to_dict(), "config": CONFIG}
    return Figure(name=name, title=title, caption=caption, chart=spec, rows=tuple(rows))


def make_data(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make the inline data of a chart."""
    return library.import_altair().Data(values=list(rows))


def to_plain(row: Any) -> dict[str, Any]:
    """Convert a row to builtin types."""
    return dict(msgspec.to_builtins(row))


def format_n(counts: Iterable[int], noun: str) -> str:
    """Return for example "n = 500 items", or "n = 480 to 500 items" where the counts differ."""
    known = sorted(set(counts))
    if not known:
        return f"n = 0 {noun}"
    return f"n = {known[0]:,} {noun}" if len(known) == 1 else f"n = {known[0]:,} to {known[-1]:,} {noun}"


def format_percent(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return for example "61.0 % (56.7 to 65.2)"; "not known" if there is no value."""
    if value is None:
        return "not known"
    percentage = f"{100 * value:.1f} %"
    return percentage if low is None or high is None else f"{percentage} ({100 * low:.1f} to {100 * high:.1f})"
