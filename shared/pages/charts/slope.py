"""A slope chart: where each thing stood before, where it stands after."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from shared.pages.texts import HIDDEN

WIDTH, ROW, TOP = 400, 24, 30
LEFT, RIGHT = 140, 260
"""Where the lines begin and end; the names stand outside."""
LONGEST_NAME = 14
"""Characters of a name that fit beside the lines."""


class Slope(NamedTuple):
    """One line."""

    name: str
    before: int
    after: int
    """Ranks, from 1."""
    strong: bool = False
    """Drawn thick: it counts."""
    marked: bool = False
    """With a star."""


def chart(slopes: Sequence[Slope], before: str, after: str) -> Markup:
    """One line for each; `before` and `after` stand above the sides. Names are shown by their beginning."""
    places = {each: place for place, each in enumerate(sorted(slopes, key=lambda each: each.before))}
    after_places = {each: place for place, each in enumerate(sorted(slopes, key=lambda each: each.after))}
    said = ", ".join(f"{_short(each.name)} from {each.before} to {each.after}" for each in slopes)
    lines = Markup("").join(_line(each, _height(places[each]), _height(after_places[each])) for each in slopes)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text class="faint" x="{}" y="14" text-anchor="end">{}'
        '</text><text class="faint" x="{}" y="14">{}</text>{}</svg>'
    ).format(WIDTH, TOP + ROW * len(slopes), f"Ranks: {said}", LEFT - 8, before, RIGHT + 8, after, lines)


def _height(place: int) -> int:
    return TOP + ROW * place + ROW // 2


def _line(slope: Slope, start: int, end: int) -> Markup:
    name, star = _short(slope.name), " ★" if slope.marked else ""
    return Markup(
        '<g class="{}{}"><line x1="{}" y1="{}" x2="{}" y2="{}"/>'
        '<text x="{}" y="{}" text-anchor="end">{}{} <tspan class="rank">{}</tspan></text>'
        '<text x="{}" y="{}"><tspan class="rank">{}</tspan> {}{}</text></g>'
    ).format(
        _way(start, end), " strong" if slope.strong else "", LEFT, start, RIGHT, end,
        LEFT - 8, start + 4, name, star, slope.before, RIGHT + 8, end + 4, slope.after, name, star,
    )  # fmt: skip


def _way(start: int, end: int) -> str:
    """As it is drawn: between documents that are not drawn a rank may change and the line stay level."""
    return "same" if start == end else "up" if end < start else "down"


def _short(name: str) -> str:
    """Its beginning; what is invisible, or would turn the text around, as a full stop."""
    shown = HIDDEN.sub(".", name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"
