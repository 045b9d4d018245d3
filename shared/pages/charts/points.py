"""Draw figures with their intervals along one parameter, with a line for each system."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from shared.pages.formatting import escape_visible

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 8, 34
MAX_SERIES = 6
"""Lines that have their own colour."""


class IntervalPoint(NamedTuple):
    """A figure and its interval, from 0 to 1."""

    value: float
    low: float
    high: float


def draw_points(series: Mapping[str, Mapping[str, IntervalPoint]], name: str, values: Sequence[str]) -> Markup:
    """Draw at most `MAX_SERIES` series and their legend; each series maps values of the axis `name` to figures."""
    shown = dict(list(series.items())[:MAX_SERIES])
    every = [point for found in shown.values() for point in found.values()]
    low, high = _axis_bounds([point.low for point in every], [point.high for point in every])
    drawn = Markup("").join(_draw_axes(values, low, high))
    for number, found in enumerate(shown.values(), 1):
        drawn += _draw_series(found, values, number, len(shown), (low, high))
    label = f"{', '.join(shown)} along {name}, from {100 * low:.0f} to {100 * high:.0f} %"
    picture = Markup('<div class="chart points"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg></div>')
    return picture.format(WIDTH, HEIGHT, replace_unprintable(label), drawn, _draw_axis_name(name)) + _draw_legend(
        list(shown)
    )


def replace_unprintable(text: str) -> str:
    """Replace characters that are not printable, so that the text can stand in an attribute."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def _axis_bounds(lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis in whole tenths, so that all intervals fit."""
    low, high = min(lows, default=0.0), max(highs, default=1.0)
    return max(0.0, math.floor(low * 10) / 10), min(1.0, math.ceil(high * 10) / 10)


def _x(at: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at + 0.5) / count


def _y(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / ((high - low) or 1.0)


def _draw_axes(values: Sequence[str], low: float, high: float) -> list[Markup]:
    grid = Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="faint" x="{}" y="{:.1f}" text-anchor="end">{:.0f} %</text>'
    )
    ticks = [low, (low + high) / 2, high]
    parts = [
        grid.format(LEFT, WIDTH - RIGHT, _y(tick, (low, high)), _y(tick, (low, high)), LEFT - 4,
                    _y(tick, (low, high)) + 4, 100 * tick)
        for tick in ticks
    ]  # fmt: skip
    label = Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    step = -(-len(values) // 8)
    return parts + [
        label.format(_x(at, len(values)), HEIGHT - BOTTOM + 14, replace_unprintable(value[:12]))
        for at, value in enumerate(values)
        if at % step == 0
    ]


def _draw_series(
    found: Mapping[str, IntervalPoint], values: Sequence[str], number: int, of: int, scale: tuple[float, float]
) -> Markup:  # fmt: skip
    """Draw one series, shifted a little from the others so that no interval hides another."""
    aside = (number - (of + 1) / 2) * 5
    places = [(_x(at, len(values)) + aside, found[value]) for at, value in enumerate(values) if value in found]
    path = " ".join(f"{x:.1f},{_y(point.value, scale):.1f}" for x, point in places)
    drawn = Markup('<polyline class="line stroke-{}" points="{}"/>').format(number, path)
    whisker = Markup('<line class="stroke-{0}" x1="{1:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{3:.1f}"/>')
    dot = Markup('<circle class="series-{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>')
    for x, point in places:
        drawn += whisker.format(number, x, _y(point.low, scale), _y(point.high, scale))
        drawn += dot.format(number, x, _y(point.value, scale))
    return drawn


def _draw_axis_name(name: str) -> Markup:
    return Markup('<text class="faint" x="{}" y="{}" text-anchor="end">{}</text>').format(
        WIDTH - RIGHT, HEIGHT - 4, replace_unprintable(name)
    )


def _draw_legend(names: Sequence[str]) -> Markup:
    key = Markup(
        '<li><svg class="dot" viewBox="0 0 12 12" aria-hidden="true"><circle class="series-{}" cx="6" cy="6" r="5"/>'
        "</svg> {}</li>"
    )
    return Markup('<ul class="legend chart">{}</ul>').format(
        Markup("").join(key.format(number, escape_visible(name)) for number, name in enumerate(names, 1))
    )
