"""Draw a slope chart: the rank of each item before and after a step."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from shared.pages.formatting import HIDDEN

WIDTH, ROW, TOP = 400, 24, 30
LEFT, RIGHT = 140, 260
"""Where the lines begin and end; the names stand outside of them."""
LONGEST_NAME = 14
"""Characters of a name that fit beside the lines."""


class Slope(NamedTuple):
    """One line of the chart."""

    name: str
    before: int
    after: int
    """Ranks, from 1."""
    strong: bool = False
    """Drawn thick."""
    marked: bool = False
    """Shown with a star."""


def draw_slopes(slopes: Sequence[Slope], before: str, after: str) -> Markup:
    """Draw one line for each slope under the headings `before` and `after`; long names are shortened."""
    places = {each: place for place, each in enumerate(sorted(slopes, key=lambda each: each.before))}
    after_places = {each: place for place, each in enumerate(sorted(slopes, key=lambda each: each.after))}
    label = ", ".join(f"{_shorten(each.name)} from {each.before} to {each.after}" for each in slopes)
    lines = Markup("").join(_draw_line(each, _line_y(places[each]), _line_y(after_places[each])) for each in slopes)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text class="faint" x="{}" y="14" text-anchor="end">{}'
        '</text><text class="faint" x="{}" y="14">{}</text>{}</svg>'
    ).format(WIDTH, TOP + ROW * len(slopes), f"Ranks: {label}", LEFT - 8, before, RIGHT + 8, after, lines)


def _line_y(place: int) -> int:
    return TOP + ROW * place + ROW // 2


def _draw_line(slope: Slope, start: int, end: int) -> Markup:
    name, star = _shorten(slope.name), " ★" if slope.marked else ""
    return Markup(
        '<g class="{}{}"><line x1="{}" y1="{}" x2="{}" y2="{}"/>'
        '<text x="{}" y="{}" text-anchor="end">{}{} <tspan class="rank">{}</tspan></text>'
        '<text x="{}" y="{}"><tspan class="rank">{}</tspan> {}{}</text></g>'
    ).format(
        _direction(start, end), " strong" if slope.strong else "", LEFT, start, RIGHT, end,
        LEFT - 8, start + 4, name, star, slope.before, RIGHT + 8, end + 4, slope.after, name, star,
    )  # fmt: skip


def _direction(start: int, end: int) -> str:
    """Return the direction of the drawn line, which can be level although the rank changes."""
    return "same" if start == end else "up" if end < start else "down"


def _shorten(name: str) -> str:
    """Shorten a name, and replace characters that are invisible or reverse the text by a full stop."""
    shown = HIDDEN.sub(".", name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"
