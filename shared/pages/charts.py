"""Charts of the live pages: SVG that fills its column and takes its colours from the theme."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from shared.pages.formatting import HIDDEN, escape_visible
from shared.pages.plots import SERIES, Axis, make_names_axis, name_series, name_shade, replace_unprintable
from shared.samples import GateDecision

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


SHARES_BAR = Markup(
    '<span class="bar chart" aria-hidden="true">'
    '<svg viewBox="0 0 100 8" preserveAspectRatio="none">{}</svg></span>'
)  # fmt: skip
SHARE = Markup('<rect x="{:.2f}" y="0" width="{:.2f}" height="8" class="{}"/>')


def draw_shares(parts: Sequence[float], whole: float = 0.0) -> Markup:
    """Draw the parts of a whole side by side, without numbers: these are next to the bar as text.

    The rest of `whole` stays empty.
    """
    total = max(whole, sum(parts)) or 1.0
    widths = [100 * part / total for part in parts]
    starts = accumulate(widths, initial=0.0)
    drawn = [
        SHARE.format(start, width, name_series(number))
        for number, (start, width) in enumerate(zip(starts, widths, strict=False))
    ]
    return SHARES_BAR.format(Markup("").join(drawn))


WHISKER = Markup(
    '<svg class="whisker" aria-hidden="true" focusable="false"><line class="axis" x1="0%" x2="100%" y1="8" y2="8"/>{}'
    '<line class="span" x1="{:.2f}%" x2="{:.2f}%" y1="8" y2="8"/><circle cx="{:.2f}%" cy="8" r="4"/></svg>'
)
WHISKER_ZERO = Markup('<line class="zero" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="16"/>')


def draw_whisker(value: float, low: float, high: float, *, start: float = 0.0, end: float = 1.0) -> Markup:
    """Draw `value` as a dot on a line from `low` to `high`, on a scale from `start` to `end`, with a line at 0 if
    that is inside.

    It is hidden from screen readers, because the figures are next to it.
    """

    def place(of: float) -> float:
        return 100 * min(max((of - start) / (end - start), 0.0), 1.0)

    zero = WHISKER_ZERO.format(place(0.0)) if start < 0 < end else Markup("")
    return WHISKER.format(zero, place(low), place(high), place(value))


POINTS_WIDTH, POINTS_HEIGHT = 360, 210
POINTS_LEFT, POINTS_RIGHT, POINTS_TOP, POINTS_BOTTOM = 40, 8, 8, 34
POINTS_GRID = Markup(
    '<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    '<text class="faint" x="{edge}" y="{below:.1f}" text-anchor="end">{tick}</text>'
)
POINTS_POINT = Markup(
    '<line class="stroke-{number}" x1="{x:.1f}" x2="{x:.1f}" y1="{foot:.1f}" y2="{top:.1f}"/>'
    '<circle class="series-{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
)
POINTS_KEY = Markup(
    '<li><svg class="dot" viewBox="0 0 12 12" aria-hidden="true"><circle class="series-{}" cx="6" cy="6" r="5"/>'
    "</svg> {}</li>"
)


class IntervalPoint(NamedTuple):
    """A figure and its interval, from 0 to 1."""

    value: float
    low: float
    high: float


def draw_points(series: Mapping[str, Mapping[str, IntervalPoint]], name: str, values: Sequence[str]) -> Markup:
    """Draw a line for each series along the axis `name`, and a legend: at most `SERIES` of them.

    Each series maps values of the axis to figures. It is shifted a little, so that no interval hides another.
    """
    shown = dict(list(series.items())[:SERIES])
    every = [point for found in shown.values() for point in found.values()]
    # The ends are in whole tenths, so that all intervals fit.
    low = max(0.0, math.floor(min((point.low for point in every), default=0.0) * 10) / 10)
    high = min(1.0, math.ceil(max((point.high for point in every), default=1.0) * 10) / 10)
    ticks = tuple((tick, f"{100 * tick:.0f} %") for tick in (low, (low + high) / 2, high))
    across, up = make_names_axis(values, name), Axis(title="", low=min(low, high - 0.1), high=high, ticks=ticks)
    right, bottom = POINTS_WIDTH - POINTS_RIGHT, POINTS_HEIGHT - POINTS_BOTTOM

    def place(at: float, value: float) -> tuple[float, float]:
        x = POINTS_LEFT + across.locate(at, right - POINTS_LEFT)
        return x, bottom - up.locate(value, bottom - POINTS_TOP)

    drawn = []
    for tick, written in up.ticks:
        _, y = place(0, tick)
        drawn.append(
            POINTS_GRID.format(left=POINTS_LEFT, right=right, y=y, below=y + 4, edge=POINTS_LEFT - 4, tick=written)
        )
    stride = -(-len(values) // 8)
    for at, value in across.ticks[::stride]:
        x, _ = place(at, low)
        text = Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
        drawn.append(text.format(x, bottom + 14, replace_unprintable(value[:12])))
    for number, found in enumerate(shown.values(), 1):
        aside = (number - (len(shown) + 1) / 2) * 5
        points = [(place(at, 0)[0] + aside, found[value]) for at, value in across.ticks if value in found]
        path = " ".join(f"{x:.1f},{place(0, point.value)[1]:.1f}" for x, point in points)
        drawn.append(Markup('<polyline class="line stroke-{}" points="{}"/>').format(number, path))
        for x, point in points:
            y, top, foot = (place(0, value)[1] for value in (point.value, point.high, point.low))
            drawn.append(POINTS_POINT.format(number=number, x=x, y=y, top=top, foot=foot))
    axis_name = Markup('<text class="faint" x="{}" y="{}" text-anchor="end">{}</text>')
    drawn.append(axis_name.format(right, POINTS_HEIGHT - 4, replace_unprintable(name)))
    label = f"{', '.join(shown)} along {name}, from {100 * low:.0f} to {100 * high:.0f} %"
    picture = Markup('<div class="chart points"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg></div>')
    keys = [POINTS_KEY.format(number, escape_visible(each)) for number, each in enumerate(shown, 1)]
    return picture.format(POINTS_WIDTH, POINTS_HEIGHT, replace_unprintable(label), Markup("").join(drawn)) + Markup(
        '<ul class="legend chart">{}</ul>'
    ).format(Markup("").join(keys))


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
    """Draw a grid of figures as a table: the higher the figure, the darker its cell, and each cell may be a link.

    A table, unlike a drawing, can be read aloud, followed and copied, and it scrolls on a small screen.

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
    kind = "missing" if figure.value is None else name_shade(figure.value, low, high)
    detail = Markup('<span class="detail">{}</span>').format(escape_visible(figure.detail)) if figure.detail else ""
    return Markup('<td class="{}">{}{}</td>').format(kind, label, detail)


SLOPE_WIDTH, SLOPE_ROW, SLOPE_TOP = 400, 24, 30
SLOPE_LEFT, SLOPE_RIGHT = 140, 260
"""Horizontal ends of the lines; the names are outside of them."""
SLOPE_CHART = Markup(
    '<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text class="faint" x="{}" y="14" text-anchor="end">{}'
    '</text><text class="faint" x="{}" y="14">{}</text>{}</svg>'
)
SLOPE_LINE = Markup(
    '<g class="{}{}"><line x1="{}" y1="{}" x2="{}" y2="{}"/>'
    '<text x="{}" y="{}" text-anchor="end">{}{} <tspan class="rank">{}</tspan></text>'
    '<text x="{}" y="{}"><tspan class="rank">{}</tspan> {}{}</text></g>'
)
LONGEST_NAME = 14
"""Characters of a name that fit next to the lines."""


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
    """Draw the rank of each item before and after a step, under these headings; long names are shortened."""
    starts = {each: _slope_y(n) for n, each in enumerate(sorted(slopes, key=lambda each: each.before))}
    ends = {each: _slope_y(n) for n, each in enumerate(sorted(slopes, key=lambda each: each.after))}
    lines = []
    for each in slopes:
        start, end = starts[each], ends[each]
        # The drawn line can be level although the rank changes.
        direction = "same" if start == end else "up" if end < start else "down"
        name, star = _shorten_name(each.name), " ★" if each.marked else ""
        line = SLOPE_LINE.format(
            direction, " strong" if each.strong else "", SLOPE_LEFT, start, SLOPE_RIGHT, end,
            SLOPE_LEFT - 8, start + 4, name, star, each.before, SLOPE_RIGHT + 8, end + 4, each.after, name, star,
        )  # fmt: skip
        lines.append(line)
    label = ", ".join(f"{_shorten_name(each.name)} from {each.before} to {each.after}" for each in slopes)
    height = SLOPE_TOP + SLOPE_ROW * len(slopes)
    return SLOPE_CHART.format(
        SLOPE_WIDTH, height, f"Ranks: {label}", SLOPE_LEFT - 8, before, SLOPE_RIGHT + 8, after, Markup("").join(lines)
    )


def _slope_y(place: int) -> int:
    return SLOPE_TOP + SLOPE_ROW * place + SLOPE_ROW // 2


def _shorten_name(name: str) -> str:
    """Shorten a name, and replace characters that are invisible or reverse the text by a full stop."""
    shown = HIDDEN.sub(".", name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"


MEMORY_WIDTH = 400
MEMORY_CHART = Markup(
    '<span class="chart memory"><svg viewBox="0 0 400 24" preserveAspectRatio="none" role="img" aria-label="{}">'
    "{}</svg></span>"
)
MEMORY_PART = Markup('<rect x="{:.1f}" y="5" width="{:.1f}" height="14" class="{}"/>')
MEMORY_BEYOND = Markup('<rect x="{:.1f}" y="1" width="{:.1f}" height="3" class="wrong"/>')
MEMORY_BUDGET = Markup('<line x1="{0:.1f}" y1="0" x2="{0:.1f}" y2="24" class="threshold"/>')


def draw_memory(parts: Mapping[str, int], budget_mib: int, scale_mib: int) -> Markup:
    """Draw the parts on a device side by side, its budget as a line, and mark what exceeds it; all in MiB.

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
    """Draw a device's residencies over time: a band for each, as high as its models' memory against the budget. None if
    there never was one.

    Args:
        flips: the flips from `GET /v1/gpus/{device}`, newest first; times as ISO 8601 or `datetime`.
        now: the end of residencies that are still open.
        budget_mib: the memory at full height; None: that of the largest residency.
    """
    known = []
    for flip in reversed(flips):
        times = (flip[name] for name in ("wanted_at", "opened_at", "closed_at"))
        wanted, opened, closed = (datetime.fromisoformat(at) if isinstance(at, str) else at for at in times)
        band = _Band(
            models=", ".join(flip["models"]), cause=flip["cause"], state=flip["state"], wanted=wanted or now,
            opened=opened, closed=closed or now, over=closed is not None, memory_mib=flip["declared_mib"],
        )  # fmt: skip
        known.append(band)
    if not known:
        return None
    end = max(band.closed for band in known)
    if not all(band.over for band in known):
        end = now + timedelta(seconds=TIMELINE_STEP_S - now.timestamp() % TIMELINE_STEP_S)
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


def _draw_band(band: _Band, frame: _TimelineFrame, colours: Mapping[str, str]) -> list[str]:
    """Draw one residency: faint while loading, solid while open; a line at the bottom if it is empty."""
    opened, colour, y = band.opened or band.closed, "drained", float(TIMELINE_HEIGHT - 6)
    if band.models:
        colour, y = colours[band.models], frame.y(band.memory_mib)
    title = f"<title>{escape(_describe_band(band))}</title>"
    return [
        f'<rect class="{colour} {kind}" x="{frame.x(begin)}" y="{y}" height="{TIMELINE_HEIGHT - y:.2f}" '
        f'width="{max(frame.x(end) - frame.x(begin), 0.5):.2f}">{title}</rect>'
        for kind, begin, end in (("loading", band.wanted, opened), ("resident", opened, band.closed))
        if end > begin and end > frame.start
    ]


def _describe_band(band: _Band) -> str:
    return f"{band.models or 'nothing'}: {band.state}, {band.memory_mib} MiB declared, cause {band.cause}"


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
SCATTER_TICK = Markup(
    '<text class="faint" x="{x:.0f}" y="222" text-anchor="middle">{tick}</text><text class="faint" x="30" y="{y:.0f}"'
    ' text-anchor="end">{tick}</text>'
)
RULER = Markup(
    '<svg viewBox="0 0 260 58" role="img" aria-label="{label}"><path class="axis" d="M10 30H250M10 26v8M130 26v8M250'
    ' 26v8"/><text class="faint" x="10" y="50" text-anchor="start">-1</text><text class="faint" x="130" y="50"'
    ' text-anchor="middle">0</text><text class="faint" x="250" y="50" text-anchor="end">1</text>{interval}'
    '<path class="threshold" d="M{tau:.1f} 16V40"/><text x="{tau:.1f}" y="12" text-anchor="middle">tau {said}</text>'
    '<circle class="series-1" cx="{rho:.1f}" cy="30" r="5"/></svg>'
)


def draw_scatter(decision: GateDecision) -> Markup:
    """Draw the scores of the calibration documents by rules and by the judge: a dot for each pair, with an area in
    proportion to its number of documents.
    """
    # One path for each number of documents, large dots first. A dot is a line of zero length with round ends.
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for (rule, judge), count in sorted(Counter(zip(decision.rule_scores, decision.judge_scores, strict=True)).items()):
        x, y = SCATTER_LEFT + SCATTER_SIDE * rule, SCATTER_TOP + SCATTER_SIDE * (1 - judge)
        alike[count].append(f"M{x:.1f} {y:.1f}h0")
    most, dots = max(alike, default=1), Markup("")
    for count in sorted(alike, reverse=True):
        size = max(LARGEST_DOT * math.sqrt(count / most), 5.0)
        dots += Markup('<path class="dots" stroke-width="{:.1f}" d="{}"/>').format(size, "".join(alike[count]))
    ticks = Markup("")
    for tick in (0, 0.5, 1):
        x, y = SCATTER_LEFT + SCATTER_SIDE * tick, SCATTER_TOP + SCATTER_SIDE * (1 - tick) + 4
        ticks += SCATTER_TICK.format(x=x, y=y, tick=tick)
    label = f"{len(decision.documents)} documents by their score by rules and by the judge, both from 0 to 1"
    return SCATTER.format(label=label, ticks=ticks, dots=dots)


def draw_ruler(decision: GateDecision) -> Markup:
    """Draw rho with its interval and tau on a scale from -1 to 1; empty without rho."""
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
