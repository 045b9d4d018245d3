"""Charts of the live pages: SVG that fills its column and takes its colours from the theme."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import sqrt
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from shared.pages.formatting import HIDDEN, escape_visible
from shared.pages.plots import SERIES, compute_shade, name_series, replace_unprintable
from shared.samples import GateDecision

# Draw bars for progress and for a share with its interval.

BAR_WIDTH = 100
"""Width of the viewBox; bars are stretched to their column."""
PROGRESS_BAR = Markup(
    '<span class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<rect class="done" width="{done:.2f}" height="10"/><rect class="failed" x="{done:.2f}" width="{failed:.2f}"'
    ' height="10"/></svg></span>'
)
INTERVAL_BAR = Markup(
    '<span class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<rect class="range" x="{low:.2f}" width="{width:.2f}" height="10"/><rect class="point" x="{point:.2f}" width="1"'
    ' height="10"/></svg></span>'
)


def draw_progress(done: int, total: int, failed: int = 0) -> Markup:
    """Draw how many of `total` are done, and how many of those failed; the bar is empty if `total` is 0."""
    label = f"{done} of {total}" + (f", {failed} failed" if failed else "")
    share = BAR_WIDTH / total if total else 0
    return PROGRESS_BAR.format(label=label, done=(done - failed) * share, failed=failed * share)


def draw_interval(value: float, low: float, high: float) -> Markup:
    """Draw a share and its interval, all in [0, 1], on a bar from 0 to 100 %."""
    label = f"{100 * value:.1f} %, between {100 * low:.1f} and {100 * high:.1f} %"
    point = min(BAR_WIDTH * value, BAR_WIDTH - 1)
    return INTERVAL_BAR.format(label=label, low=BAR_WIDTH * low, width=BAR_WIDTH * (high - low), point=point)


# Draw the parts of a whole side by side in a bar, without numbers: these stand beside it as text.

SHARES_BAR = Markup(
    '<span class="bar chart" aria-hidden="true">'
    '<svg viewBox="0 0 100 8" preserveAspectRatio="none">{}</svg></span>'
)  # fmt: skip
SHARE = Markup('<rect x="{:.2f}" y="0" width="{:.2f}" height="8" class="{}"/>')


def draw_shares(parts: Sequence[float], whole: float = 0.0) -> Markup:
    """Draw the parts in their order; the rest of `whole` stays empty."""
    total = max(whole, sum(parts)) or 1.0
    widths = [100 * part / total for part in parts]
    starts = accumulate(widths, initial=0.0)
    return SHARES_BAR.format(
        Markup("").join(
            SHARE.format(start, width, name_series(number))
            for number, (start, width) in enumerate(zip(starts, widths, strict=False))
        )
    )


# Draw a figure with its interval as a dot on a line as wide as its column.

WHISKER = Markup(
    '<svg class="whisker" aria-hidden="true" focusable="false"><line class="axis" x1="0%" x2="100%" y1="8" y2="8"/>{}'
    '<line class="span" x1="{:.2f}%" x2="{:.2f}%" y1="8" y2="8"/><circle cx="{:.2f}%" cy="8" r="4"/></svg>'
)
WHISKER_ZERO = Markup('<line class="zero" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="16"/>')


def draw_whisker(value: float, low: float, high: float, *, start: float = 0.0, end: float = 1.0) -> Markup:
    """Draw `value` between `low` and `high` on a scale from `start` to `end`, with a line at 0 if that is inside.

    It is hidden from screen readers, because the figures stand beside it.
    """

    def place(of: float) -> float:
        return 100 * min(max((of - start) / (end - start), 0.0), 1.0)

    zero = WHISKER_ZERO.format(place(0.0)) if start < 0 < end else Markup("")
    return WHISKER.format(zero, place(low), place(high), place(value))


# Draw figures with their intervals along one parameter, with a line for each system.

POINTS_WIDTH, POINTS_HEIGHT = 360, 210
POINTS_LEFT, POINTS_RIGHT, POINTS_TOP, POINTS_BOTTOM = 40, 8, 8, 34


class IntervalPoint(NamedTuple):
    """A figure and its interval, from 0 to 1."""

    value: float
    low: float
    high: float


def draw_points(series: Mapping[str, Mapping[str, IntervalPoint]], name: str, values: Sequence[str]) -> Markup:
    """Draw at most `SERIES` series and their legend; each series maps values of the axis `name` to figures."""
    shown = dict(list(series.items())[:SERIES])
    every = [point for found in shown.values() for point in found.values()]
    low, high = _point_bounds([point.low for point in every], [point.high for point in every])
    drawn = Markup("").join(_draw_point_axes(values, low, high))
    for number, found in enumerate(shown.values(), 1):
        drawn += _draw_point_series(found, values, number, len(shown), (low, high))
    label = f"{', '.join(shown)} along {name}, from {100 * low:.0f} to {100 * high:.0f} %"
    picture = Markup('<div class="chart points"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg></div>')
    return picture.format(
        POINTS_WIDTH, POINTS_HEIGHT, replace_unprintable(label), drawn, _draw_axis_name(name)
    ) + _draw_point_legend(list(shown))


def _point_bounds(lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis in whole tenths, so that all intervals fit."""
    low, high = min(lows, default=0.0), max(highs, default=1.0)
    return max(0.0, math.floor(low * 10) / 10), min(1.0, math.ceil(high * 10) / 10)


def _point_x(at: int, count: int) -> float:
    return POINTS_LEFT + (POINTS_WIDTH - POINTS_LEFT - POINTS_RIGHT) * (at + 0.5) / count


def _point_y(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return POINTS_TOP + (POINTS_HEIGHT - POINTS_TOP - POINTS_BOTTOM) * (high - value) / ((high - low) or 1.0)


def _draw_point_axes(values: Sequence[str], low: float, high: float) -> list[Markup]:
    grid = Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text class="faint" x="{}" y="{:.1f}" text-anchor="end">{:.0f} %</text>'
    )
    ticks = [low, (low + high) / 2, high]
    heights = [(tick, _point_y(tick, (low, high))) for tick in ticks]
    parts = [
        grid.format(POINTS_LEFT, POINTS_WIDTH - POINTS_RIGHT, y, y, POINTS_LEFT - 4, y + 4, 100 * tick)
        for tick, y in heights
    ]
    label = Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    step = -(-len(values) // 8)
    return parts + [
        label.format(_point_x(at, len(values)), POINTS_HEIGHT - POINTS_BOTTOM + 14, replace_unprintable(value[:12]))
        for at, value in enumerate(values)
        if at % step == 0
    ]


def _draw_point_series(
    found: Mapping[str, IntervalPoint], values: Sequence[str], number: int, of: int, scale: tuple[float, float]
) -> Markup:  # fmt: skip
    """Draw one series, shifted a little from the others so that no interval hides another."""
    aside = (number - (of + 1) / 2) * 5
    places = [(_point_x(at, len(values)) + aside, found[value]) for at, value in enumerate(values) if value in found]
    path = " ".join(f"{x:.1f},{_point_y(point.value, scale):.1f}" for x, point in places)
    drawn = Markup('<polyline class="line stroke-{}" points="{}"/>').format(number, path)
    whisker = Markup('<line class="stroke-{0}" x1="{1:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{3:.1f}"/>')
    dot = Markup('<circle class="series-{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>')
    for x, point in places:
        drawn += whisker.format(number, x, _point_y(point.low, scale), _point_y(point.high, scale))
        drawn += dot.format(number, x, _point_y(point.value, scale))
    return drawn


def _draw_axis_name(name: str) -> Markup:
    return Markup('<text class="faint" x="{}" y="{}" text-anchor="end">{}</text>').format(
        POINTS_WIDTH - POINTS_RIGHT, POINTS_HEIGHT - 4, replace_unprintable(name)
    )


def _draw_point_legend(names: Sequence[str]) -> Markup:
    key = Markup(
        '<li><svg class="dot" viewBox="0 0 12 12" aria-hidden="true"><circle class="series-{}" cx="6" cy="6" r="5"/>'
        "</svg> {}</li>"
    )
    return Markup('<ul class="legend chart">{}</ul>').format(
        Markup("").join(key.format(number, escape_visible(name)) for number, name in enumerate(names, 1))
    )


# Draw a grid of figures as a table: the higher the figure, the darker its cell, and each cell may be a link.
#
# A table, unlike a drawing, can be read aloud, followed and copied, and it scrolls on a small screen.


class HeatCell(NamedTuple):
    """The content of a cell."""

    value: float | None
    """From 0 to 1; None: there is no figure, and `said` tells why."""
    said: str
    """The number as text, or the reason why there is none."""
    detail: str = ""
    """A second line, such as the interval."""
    href: str | None = None


HeatPlace = tuple[str, str]
"""Column, row."""


def draw_heat_table(
    figures: Mapping[HeatPlace, HeatCell], columns: tuple[str, Sequence[str]], rows: tuple[str, Sequence[str]],
    *, caption: str, low: float, high: float,
) -> Markup:  # fmt: skip
    """Draw the table.

    Args:
        columns: name and values of the horizontal axis.
        rows: name and values of the vertical axis.
        low: the figure with the lightest shade.
        high: the figure with the darkest shade.
    """
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(escape_visible(value)) for value in columns[1])
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(
            escape_visible(row),
            Markup("").join(_draw_heat_cell(figures.get((column, row)), low, high) for column in columns[1]),
        )
        for row in rows[1]
    )
    corner = Markup('<th scope="col">{}&nbsp;↓ {}&nbsp;→</th>').format(
        escape_visible(rows[0]), escape_visible(columns[0])
    )
    return Markup(
        '<div class="wide"><table class="heat"><caption>{}</caption><thead><tr>{}{}</tr></thead>'
        "<tbody>\n{}</tbody></table></div>"
    ).format(escape_visible(caption), corner, heads, body)


def _draw_heat_cell(figure: HeatCell | None, low: float, high: float) -> Markup:
    if figure is None:
        return Markup('<td class="missing">–</td>')
    label = escape_visible(figure.said)
    if figure.href is not None:
        label = Markup('<a href="{}">{}</a>').format(figure.href, label)
    kind = "missing" if figure.value is None else f"heat-{compute_shade(figure.value, low, high)}"
    detail = Markup('<span class="detail">{}</span>').format(escape_visible(figure.detail)) if figure.detail else ""
    return Markup('<td class="{}">{}{}</td>').format(kind, label, detail)


# Draw a slope chart: the rank of each item before and after a step.

SLOPE_WIDTH, SLOPE_ROW, SLOPE_TOP = 400, 24, 30
SLOPE_LEFT, SLOPE_RIGHT = 140, 260
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
    label = ", ".join(f"{_shorten_name(each.name)} from {each.before} to {each.after}" for each in slopes)
    lines = Markup("").join(_draw_slope(each, _slope_y(places[each]), _slope_y(after_places[each])) for each in slopes)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text class="faint" x="{}" y="14" text-anchor="end">{}'
        '</text><text class="faint" x="{}" y="14">{}</text>{}</svg>'
    ).format(
        SLOPE_WIDTH,
        SLOPE_TOP + SLOPE_ROW * len(slopes),
        f"Ranks: {label}",
        SLOPE_LEFT - 8,
        before,
        SLOPE_RIGHT + 8,
        after,
        lines,
    )


def _slope_y(place: int) -> int:
    return SLOPE_TOP + SLOPE_ROW * place + SLOPE_ROW // 2


def _draw_slope(slope: Slope, start: int, end: int) -> Markup:
    name, star = _shorten_name(slope.name), " ★" if slope.marked else ""
    return Markup(
        '<g class="{}{}"><line x1="{}" y1="{}" x2="{}" y2="{}"/>'
        '<text x="{}" y="{}" text-anchor="end">{}{} <tspan class="rank">{}</tspan></text>'
        '<text x="{}" y="{}"><tspan class="rank">{}</tspan> {}{}</text></g>'
    ).format(
        _slope_direction(start, end), " strong" if slope.strong else "", SLOPE_LEFT, start, SLOPE_RIGHT, end,
        SLOPE_LEFT - 8, start + 4, name, star, slope.before, SLOPE_RIGHT + 8, end + 4, slope.after, name, star,
    )  # fmt: skip


def _slope_direction(start: int, end: int) -> str:
    """Return the direction of the drawn line, which can be level although the rank changes."""
    return "same" if start == end else "up" if end < start else "down"


def _shorten_name(name: str) -> str:
    """Shorten a name, and replace characters that are invisible or reverse the text by a full stop."""
    shown = HIDDEN.sub(".", name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"


# Draw the memory that a device would hold against its budget.

MEMORY_WIDTH = 400
MEMORY_CHART = Markup(
    '<span class="chart memory"><svg viewBox="0 0 400 24" preserveAspectRatio="none" role="img" aria-label="{}">'
    "{}</svg></span>"
)
MEMORY_PART = Markup('<rect x="{:.1f}" y="5" width="{:.1f}" height="14" class="{}"/>')
MEMORY_BEYOND = Markup('<rect x="{:.1f}" y="1" width="{:.1f}" height="3" class="wrong"/>')
MEMORY_BUDGET = Markup('<line x1="{0:.1f}" y1="0" x2="{0:.1f}" y2="24" class="threshold"/>')


def draw_memory(parts: Mapping[str, int], budget_mib: int, scale_mib: int) -> Markup:
    """Draw the parts side by side in MiB, the budget as a line, and mark what exceeds it.

    `scale_mib` is the width of the whole chart.
    """
    unit = MEMORY_WIDTH / max(scale_mib, 1)
    starts = list(accumulate(parts.values(), initial=0))
    drawn = [
        MEMORY_PART.format(unit * start, unit * mib, name_series(number))
        for number, (start, mib) in enumerate(zip(starts, parts.values(), strict=False))
    ]
    if starts[-1] > budget_mib:
        drawn.append(MEMORY_BEYOND.format(unit * budget_mib, unit * (starts[-1] - budget_mib)))
    drawn.append(MEMORY_BUDGET.format(min(unit * budget_mib, MEMORY_WIDTH - 1)))
    label = ", ".join(f"{name} {mib:,} MiB" for name, mib in parts.items())
    return MEMORY_CHART.format(f"{label}; budget {budget_mib:,} MiB", Markup("").join(drawn))


# Draw a device's residencies over time: a band for each, as high as its models' memory against the budget.

TIMELINE_WIDTH, TIMELINE_HEIGHT = 1000, 100
TIMELINE_SHOWN = timedelta(minutes=10)
"""How much of the past is shown, back from the last change or from now."""
TIMELINE_STEP_S = 5
"""An open timeline ends at the next multiple of this, so that it does not change every second."""


class Timeline(NamedTuple):
    """The drawing, with its ends and its legend."""

    svg: Markup
    start: datetime
    end: datetime
    legend: list[tuple[str, str]]
    """The class of each colour, and the models that it stands for."""


def draw_timeline(flips: Sequence[Mapping[str, Any]], budget_mib: int | None, now: datetime) -> Timeline | None:
    """Draw the residencies of one device; None if there never was one.

    Args:
        flips: the flips from `GET /v1/gpus/{device}`, newest first; times as ISO 8601 or `datetime`.
        now: the end of residencies that are still open.
        budget_mib: the memory at full height; None: that of the largest residency.
    """
    known = [_make_band(flip, now) for flip in reversed(flips)]
    if not known:
        return None
    end = _find_end(known, now)
    start = max(min(band.wanted for band in known), end - TIMELINE_SHOWN)
    bands = [band for band in known if band.closed > start] or known[-1:]
    top = budget_mib or max(max(band.memory_mib for band in bands), 1)
    names = list(dict.fromkeys(band.models for band in bands if band.models))
    colours = {models: name_series(number) for number, models in enumerate(names)}
    frame = _TimelineFrame(start, max((end - start).total_seconds(), 0.001), top)
    shapes = "".join(shape for band in bands for shape in _draw_band(band, frame, colours))
    svg = (
        f'<svg viewBox="0 0 {TIMELINE_WIDTH} {TIMELINE_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_describe_band(bands[-1]))}">{shapes}'
        f'<line class="threshold" x2="{TIMELINE_WIDTH}" y1="1" y2="1"/>'
        f'<line class="axis" x2="{TIMELINE_WIDTH}" y1="{TIMELINE_HEIGHT}" y2="{TIMELINE_HEIGHT}"/></svg>'
    )
    return Timeline(Markup(svg), start, end, [(colours[models], models) for models in names])  # noqa: S704 - escaped


class _Band(NamedTuple):
    models: str
    cause: str
    state: str
    wanted: datetime
    opened: datetime | None
    closed: datetime
    """Now, if it is still open."""
    over: bool
    memory_mib: int


class _TimelineFrame(NamedTuple):
    start: datetime
    seconds: float
    top_mib: int

    def x(self, at: datetime) -> float:
        return round(min(max((at - self.start).total_seconds() / self.seconds, 0.0), 1.0) * TIMELINE_WIDTH, 2)

    def y(self, mib: int) -> float:
        return round(TIMELINE_HEIGHT * (1 - min(mib / self.top_mib, 1.0)), 2)


def _make_band(flip: Mapping[str, Any], now: datetime) -> _Band:
    wanted, opened, closed = (_parse_time(flip[name]) for name in ("wanted_at", "opened_at", "closed_at"))
    return _Band(
        ", ".join(flip["models"]), flip["cause"], flip["state"], wanted or now, opened, closed or now,
        closed is not None, flip["declared_mib"],
    )  # fmt: skip


def _find_end(bands: Sequence[_Band], now: datetime) -> datetime:
    last = max(band.closed for band in bands)
    if all(band.over for band in bands):
        return last
    return now + timedelta(seconds=TIMELINE_STEP_S - now.timestamp() % TIMELINE_STEP_S)


def _draw_band(band: _Band, frame: _TimelineFrame, colours: Mapping[str, str]) -> list[str]:
    """Draw one residency: faint while loading, solid while open; a line at the bottom if it is empty."""
    opened = band.opened or band.closed
    colour, y = (
        (colours[band.models], frame.y(band.memory_mib)) if band.models else ("drained", float(TIMELINE_HEIGHT - 6))
    )
    title = f"<title>{escape(_describe_band(band))}</title>"
    return [
        f'<rect class="{colour} {kind}" x="{frame.x(begin)}" y="{y}" height="{TIMELINE_HEIGHT - y:.2f}" '
        f'width="{max(frame.x(end) - frame.x(begin), 0.5):.2f}">{title}</rect>'
        for kind, begin, end in (("loading", band.wanted, opened), ("resident", opened, band.closed))
        if end > begin and end > frame.start
    ]


def _describe_band(band: _Band) -> str:
    return f"{band.models or 'nothing'}: {band.state}, {band.memory_mib} MiB declared, cause {band.cause}"


def _parse_time(value: str | datetime | None) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


# Draw the gate's decision: the scores of the calibration documents by rules and by the judge, and rho against tau.

SCATTER_SIDE, SCATTER_LEFT, SCATTER_TOP = 200, 34, 8
"""Side of the scatter plot's square and its offsets, in units of the viewBox."""
RULER_WIDTH = 240
"""Width of the line from rho = -1 to 1."""
LARGEST_DOT = 14.0
SCATTER = Markup(
    '<svg viewBox="0 0 250 246" role="img" aria-label="{label}"><rect class="axis" x="34" y="8" width="200"'
    ' height="200"/>{ticks}{dots}<text x="134" y="240" text-anchor="middle">score by rules</text>'
    '<text x="4" y="108" text-anchor="middle" transform="rotate(-90 4 108)">score by the judge</text></svg>'
)
RULER = Markup(
    '<svg viewBox="0 0 260 58" role="img" aria-label="{label}"><path class="axis" d="M10 30H250M10 26v8M130 26v8M250'
    ' 26v8"/><text class="faint" x="10" y="50" text-anchor="start">-1</text><text class="faint" x="130" y="50"'
    ' text-anchor="middle">0</text><text class="faint" x="250" y="50" text-anchor="end">1</text>{interval}'
    '<path class="threshold" d="M{tau:.1f} 16V40"/><text x="{tau:.1f}" y="12" text-anchor="middle">tau {said}</text>'
    '<circle class="series-1" cx="{rho:.1f}" cy="30" r="5"/></svg>'
)


def draw_scatter(decision: GateDecision) -> Markup:
    """Draw a dot for each pair of scores, with an area in proportion to its number of documents."""
    places: defaultdict[tuple[float, float], int] = defaultdict(int)
    for pair in zip(decision.rule_scores, decision.judge_scores, strict=True):
        places[pair] += 1
    label = f"{len(decision.documents)} documents by their score by rules and by the judge, both from 0 to 1"
    return SCATTER.format(label=label, ticks=_draw_scatter_ticks(), dots=Markup("").join(_draw_scatter_dots(places)))


def _draw_scatter_dots(places: dict[tuple[float, float], int]) -> Iterable[Markup]:
    """Yield one path for each number of documents, large dots first.

    A dot is a line of zero length with round ends.
    """
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for (rule, judge), count in sorted(places.items()):
        alike[count].append(
            f"M{SCATTER_LEFT + SCATTER_SIDE * rule:.1f} {SCATTER_TOP + SCATTER_SIDE * (1 - judge):.1f}h0"
        )
    most = max(alike, default=1)
    for count in sorted(alike, reverse=True):
        size = max(LARGEST_DOT * sqrt(count / most), 5.0)
        yield Markup('<path class="dots" stroke-width="{:.1f}" d="{}"/>').format(size, "".join(alike[count]))


def _draw_scatter_ticks() -> Markup:
    return Markup("").join(
        Markup(
            '<text class="faint" x="{:.0f}" y="222" text-anchor="middle">{}</text><text class="faint" x="30" y="{:.0f}"'
            ' text-anchor="end">{}</text>'
        ).format(SCATTER_LEFT + SCATTER_SIDE * value, shown, SCATTER_TOP + SCATTER_SIDE * (1 - value) + 4, shown)
        for value, shown in ((0, "0"), (0.5, "0.5"), (1, "1"))
    )


def draw_ruler(decision: GateDecision) -> Markup:
    """Draw rho with its interval and tau on a scale from -1 to 1; empty if there is no rho."""
    if decision.rho is None:
        return Markup("")
    low, high = decision.low, decision.high
    known = low is not None and high is not None
    bounds = Markup('<path class="interval" d="M{:.1f} 30H{:.1f}"/>').format(_ruler_x(low or 0), _ruler_x(high or 0))
    label = f"rho {decision.rho:.3f}{f', between {low:.3f} and {high:.3f}' if known else ''}; tau {decision.tau:g}"
    return RULER.format(
        label=label, interval=bounds if known else "", tau=_ruler_x(decision.tau), said=f"{decision.tau:g}",
        rho=_ruler_x(decision.rho),
    )  # fmt: skip


def _ruler_x(value: float) -> float:
    return 10 + RULER_WIDTH * (max(-1.0, min(1.0, value)) + 1) / 2
