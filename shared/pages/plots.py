"""Draw figures with axes as SVG, in any width: panels of marks under a legend.

Every element has the class by which the style sheet of the pages colours it, and the colour of the light theme for
programs that show the file alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from markupsafe import Markup

Point = tuple[float, float]
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
SIZE, TITLE_SIZE = 12, 15
LINE = 16
"""Height of a line of text."""
MARGIN = 12
SERIES = 6
"""Number of colours; a seventh line repeats the first, in another shape and dash."""
SHADES = 8
"""Shades of a cell above the lightest."""
SHAPES = ("circle", "square", "diamond", "triangle", "cross", "down")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 2 1 2", "10 4", "1 3", "3 1")
COLOURS = {
    "ink": "#1b1f24", "faint": "#57606a", "line": "#d0d7de", "card": "#fff", "series-1": "#0072b2",
    "series-2": "#c2680c", "series-3": "#00805d", "series-4": "#a64f86", "series-5": "#50606e", "series-6": "#8a6d00",
}  # fmt: skip
"""Values of the light theme in the style sheet."""


def name_series(number: int) -> str:
    """Return the colour of a series, counted from 0."""
    return f"series-{number % SERIES + 1}"


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """A scale with its ticks; `low` is at the left or at the bottom, and may be the larger value."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_logarithmic: bool = False
    has_grid: bool = True
    inset: float = 0
    """Room between the ends of the scale and the ends of the plot, in units of the drawing."""

    def locate(self, value: float, length: float) -> float:
        """Return the distance of a value from the start of a plot of this length."""
        low, high = self.low, self.high
        if self.is_logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.inset + (length - 2 * self.inset) * (value - low) / (high - low)


def make_axis(
    title: str, values: Iterable[float | None] = (), *, ends: tuple[float, float] | None = None,
    from_zero: bool = False, is_percentage: bool = False, inset: float = 0, has_grid: bool = True,
) -> Axis:  # fmt: skip
    """Make a linear axis from `ends`, or from the values to the next ticks around them."""
    known = [value for value in values if value is not None] or [0.0, 1.0]
    low, high = ends or (min(known, default=0.0), max(known, default=1.0))
    low = min(low, 0.0) if from_zero else low
    high = high if high > low else low + (abs(low) / 10 or 1.0)
    # Four to ten ticks, at a distance of 1, 2 or 5 times a power of ten.
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = power * next(factor for factor in (5, 2, 1) if (high - low) / (factor * power) > 4 - 1e-9)
    if ends is None:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = [round(number * step, 12) for number in range(first, last + 1)]
    if is_percentage:  # the axis may be longer, for texts behind bars
        places = [place for place in places if place <= 1]
    decimals = max(0, -math.floor(math.log10(step * (100 if is_percentage else 1)) + 1e-9))
    ticks = tuple(
        (place, f"{100 * place:.{decimals}f} %" if is_percentage else f"{place:,.{decimals}f}") for place in places
    )
    return Axis(title=title, low=low, high=high, ticks=ticks, inset=inset, has_grid=has_grid)


def make_logarithmic_axis(title: str, values: Iterable[float]) -> Axis:
    """Make an axis over whole powers of ten."""
    known = list(values) or [1.0]
    low, high = math.floor(math.log10(min(known)) + 1e-9), math.ceil(math.log10(max(known)) - 1e-9)
    high = max(high, low + 1)
    factors = (1, 2, 5) if high - low <= 2 else (1,)
    places = [factor * 10.0**power for power in range(low, high) for factor in factors] + [10.0**high]
    ticks = tuple((place, f"{place:g}") for place in places)
    return Axis(title=title, low=10.0**low, high=10.0**high, ticks=ticks, is_logarithmic=True)


def make_names_axis(names: Sequence[str], title: str = "", *, is_downward: bool = False) -> Axis:
    """Make an axis with a place for each name, at 0, 1, 2 and so on; downward, the first is at the top."""
    low, high = -0.5, max(len(names), 1) - 0.5
    if is_downward:
        low, high = high, low
    return Axis(title=title, low=low, high=high, ticks=tuple(enumerate(names)), has_grid=False)


class Line(msgspec.Struct, frozen=True):
    """A line through points."""

    points: tuple[Point, ...]
    colour: str = "ink"
    width: float = 1.4
    dash: str = ""


class Bar(msgspec.Struct, frozen=True):
    """A rectangle between two corners."""

    start: Point
    end: Point
    colour: str | None
    """None: only a frame is drawn."""


class Dot(msgspec.Struct, frozen=True):
    """A symbol at a point."""

    at: Point
    colour: str
    shape: str = "circle"
    radius: float = 4.5
    is_transparent: bool = False


class Label(msgspec.Struct, frozen=True):
    """A text at a point, moved by `shift` units of the drawing."""

    at: Point
    text: str
    anchor: str = "middle"
    shift: Point = (0, 0)
    style: str = ""
    """"strong", "faint" or none."""
    room: float = 0
    """Width in units of the horizontal axis; in less room the text is written smaller. 0: any."""


class Aside(msgspec.Struct, frozen=True):
    """A text at the right of the plot, at a value of the vertical axis."""

    y: float
    text: str


Mark = Line | Bar | Dot | Label | Aside


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A plot with two axes."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: float | None = None
    """None: as high as it is wide."""
    title: str = ""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the legend."""

    text: str
    colour: str
    shape: str = "square"
    """A shape of `SHAPES`, or "line"."""
    dash: str = ""
    radius: float = 5


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """All panels of a figure, with the legend above them."""

    panels: tuple[Panel, ...]
    keys: tuple[Key, ...] = ()
    columns: int = 1
    panel_width: float = math.inf
    """The most that a panel takes of the drawing's width."""


class _Frame(NamedTuple):
    """The place of a panel in the drawing."""

    panel: Panel
    left: float
    top: float
    width: float
    height: float

    def place(self, point: Point) -> Point:
        x = self.left + self.panel.x.locate(point[0], self.width)
        return x, self.top + self.height - self.panel.y.locate(point[1], self.height)


def draw_plot(
    plot: Plot, width: int, label: str, *, title: str = "", notes: Sequence[str] = (), has_ground: bool = False
) -> str:
    """Draw the plot as an SVG of this width, whose height follows.

    Args:
        plot: the panels and their legend.
        width: width of the whole drawing.
        label: text for screen readers, for which the drawing is one image.
        title: printed above the plot.
        notes: printed under the title, wrapped where they are too long.
        has_ground: whether the drawing has a white ground instead of none.
    """
    drawn: list[Markup] = []
    y = float(MARGIN)
    for line in wrap(title, width - 2 * MARGIN, TITLE_SIZE):
        y += LINE + 4
        drawn.append(_draw_text((MARGIN, y - 6), line, style="title"))
    for line in (part for note in notes for part in wrap(note, width - 2 * MARGIN)):
        y += LINE
        drawn.append(_draw_text((MARGIN, y - 4), line, style="faint"))
    keys, y = _draw_keys(plot.keys, y, width)
    panels, y = _draw_panels(plot, y + 4, width)
    height = math.ceil(y + MARGIN)
    ground = Markup('<rect width="{}" height="{}" fill="#fff"/>').format(width, height) if has_ground else Markup("")
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{}" width="{}" height="{}" viewBox="0 0 {} {}"'
        ' font-family="{}" font-size="{}" fill="{}">{}{}</svg>'
    ).format(
        replace_unprintable(label), width, height, width, height, FONT, SIZE, COLOURS["ink"], ground,
        Markup("").join([*drawn, *keys, *panels]),
    )  # fmt: skip


def _draw_keys(keys: Sequence[Key], y: float, width: float) -> tuple[list[Markup], float]:
    """Return the legend, in as many lines as it needs, and the height where it ends."""
    drawn: list[Markup] = []
    if not keys:
        return drawn, y
    x, tallest = float(MARGIN), max(LINE + 4.0, *(2 * key.radius + 4 for key in keys))
    for key in keys:
        room = 2 * max(key.radius, 6) + 6
        text = shorten(key.text, width - 2 * MARGIN - room)
        if x > MARGIN and x + room + measure(text) > width - MARGIN:
            x, y = float(MARGIN), y + tallest
        middle = y + tallest / 2
        if key.shape == "line":
            drawn.append(_draw_line([(x, middle), (x + 16, middle)], key.colour, 2.4, key.dash))
            room += 4
        else:
            drawn.append(_draw_symbol((x + room / 2 - 3, middle), key.colour, key.shape, key.radius))
        drawn.append(_draw_text((x + room, middle + 4), text))
        x += room + measure(text) + 18
    return drawn, y + tallest


def _draw_panels(plot: Plot, y: float, width: float) -> tuple[list[Markup], float]:
    """Return all panels and the height where they end."""
    panels = plot.panels
    names = min(0.36 * width, max((measure(name) for panel in panels for _, name in panel.y.ticks), default=0.0))
    texts = [mark.text for panel in panels for mark in panel.marks if isinstance(mark, Aside)]
    asides = max(map(measure, texts), default=0.0)
    beside = LINE + 4 if any(panel.y.title for panel in panels) else 0
    left = MARGIN + beside + names + 8
    room = width - left - max(asides + 10, 12) - MARGIN
    columns = max(1, min(plot.columns, len(panels), int(room // 110)))
    across = min(plot.panel_width, (room - (columns - 1) * 24) / columns)
    drawn, top = [], y
    for first in range(0, len(panels), columns):
        row = panels[first : first + columns]
        y += LINE + 2 if any(panel.title for panel in row) else 0
        height = max(across if panel.height is None else panel.height for panel in row)
        has_ticks = False
        for column, panel in enumerate(row):
            frame = _Frame(panel, left + column * (across + 24), y, across, height)
            is_lowest = first + column + columns >= len(panels)
            has_ticks = has_ticks or is_lowest
            drawn.append(_draw_panel(frame, names if column == 0 else 0.0, has_ticks=is_lowest))
        y += height + (LINE + 4 if has_ticks else 10)
    if panels:
        if panels[-1].x.title:
            y += LINE + 2
            title = shorten(panels[-1].x.title, width - 2 * MARGIN)
            middle = max(left + (columns * (across + 24) - 24) / 2, MARGIN + measure(title) / 2)
            drawn.append(_draw_text((middle, y - 4), title, anchor="middle"))
        if beside:
            at = f"rotate(-90 {MARGIN + SIZE} {(top + y) / 2:.1f})"
            title = shorten(panels[0].y.title, y - top + 2 * MARGIN)
            drawn.append(_draw_text((MARGIN + SIZE, (top + y) / 2), title, anchor="middle", turn=at))
    return drawn, y


def _draw_panel(frame: _Frame, names: float, *, has_ticks: bool) -> Markup:
    """Draw one panel; `names` is the room for the names of the vertical axis, 0 if it has none."""
    panel, left, top, width, height = frame
    bottom, right = top + height, left + width
    drawn: list[Markup] = []
    if panel.title:
        drawn.append(_draw_text((left, top - 6), shorten(panel.title, width), style="strong"))
    for value, name in panel.y.ticks:
        _, y = frame.place((panel.x.low, value))
        if panel.y.has_grid:
            drawn.append(_draw_line([(left, y), (right, y)], "line", 1))
        if names:
            drawn.append(_draw_text((left - 6, y + 4), shorten(name, names), anchor="end"))
    places = [(frame.place((value, panel.y.low))[0], name) for value, name in panel.x.ticks]
    stride = _choose_stride(places)
    for number, (x, name) in enumerate(places):
        if panel.x.has_grid:
            drawn.append(_draw_line([(x, top), (x, bottom)], "line", 1))
        if has_ticks and number % stride == 0:
            drawn.append(_draw_text((x, bottom + LINE), name, anchor="middle"))
    drawn.append(_draw_line([(left, top), (left, bottom), (right, bottom)], "faint", 1))
    drawn += [_draw_mark(mark, frame) for mark in panel.marks]
    return Markup("").join(drawn)


def _choose_stride(places: Sequence[tuple[float, str]]) -> int:
    """Return 1, or 2 to write only every second name where all would overlap, and so on."""
    stride = 1
    while any(
        later - x < (measure(name) + measure(next_name)) / 2 + 5
        for (x, name), (later, next_name) in pairwise(places[::stride])
    ):
        stride += 1
    return stride


def _draw_mark(mark: Mark, frame: _Frame) -> Markup:
    match mark:
        case Line():
            return _draw_line([frame.place(point) for point in mark.points], mark.colour, mark.width, mark.dash)
        case Bar():
            (x, y), (end_x, end_y) = frame.place(mark.start), frame.place(mark.end)
            return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" {}/>').format(
                min(x, end_x), min(y, end_y), abs(end_x - x), abs(end_y - y), _paint_bar(mark.colour)
            )
        case Dot():
            return _draw_symbol(
                frame.place(mark.at), mark.colour, mark.shape, mark.radius, is_transparent=mark.is_transparent
            )
        case Label():
            x, y = frame.place(mark.at)
            end, _ = frame.place((mark.at[0] + mark.room, mark.at[1]))
            style = f"small {mark.style}".rstrip() if mark.room and 1.15 * measure(mark.text) > end - x else mark.style
            return _draw_text((x + mark.shift[0], y + mark.shift[1]), mark.text, anchor=mark.anchor, style=style)
        case Aside():
            _, y = frame.place((frame.panel.x.low, mark.y))
            return _draw_text((frame.left + frame.width + 10, y + 4), mark.text)


def _draw_line(points: Iterable[Point], colour: str, width: float, dash: str = "") -> Markup:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline class="stroke-{}" stroke="{}" stroke-width="{}"{} fill="none" points="{}"/>').format(
        colour.removeprefix("series-"), COLOURS[colour], width,
        Markup(' stroke-dasharray="{}"').format(dash) if dash else "", path,
    )  # fmt: skip


def _paint_bar(colour: str | None) -> Markup:
    if colour is None:
        return Markup('class="stroke-ink" stroke="{}" stroke-width="1.6" fill="none"').format(COLOURS["ink"])
    fill = COLOURS.get(colour)
    if fill is None:
        # A shade mixes the first series with white, as the style sheet does.
        part = (4 + 5 * int(colour.removeprefix("heat-"))) / 100
        base = bytes.fromhex(COLOURS["series-1"][1:])
        fill = "#" + bytes(round(part * each + (1 - part) * 255) for each in base).hex()
    return Markup('class="{}" fill="{}"').format(colour, fill)


def name_shade(value: float, low: float, high: float) -> str:
    """Return the colour of a cell, from `heat-0`, the lightest, to the one of `SHADES`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return f"heat-{round(SHADES * min(max(share, 0.0), 1.0))}"


OUTLINES: Mapping[str, Sequence[Point]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
    "triangle": ((0, -1.2), (1.2, 0.9), (-1.2, 0.9)),
    "down": ((0, 1.2), (1.2, -0.9), (-1.2, -0.9)),
    "cross": (
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2),
        (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ),
}  # fmt: skip
"""Corners of shapes with a radius of 1."""


def _draw_symbol(at: Point, colour: str, shape: str, radius: float, *, is_transparent: bool = False) -> Markup:
    paint = Markup('class="{}" fill="{}"{}').format(
        colour, COLOURS[colour], Markup(' fill-opacity=".5"') if is_transparent else ""
    )
    if shape == "circle":
        return Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" {}/>').format(*at, radius, paint)
    corners = " ".join(f"{at[0] + radius * x:.1f},{at[1] + radius * y:.1f}" for x, y in OUTLINES[shape])
    return Markup('<polygon points="{}" {}/>').format(corners, paint)


STYLES = {
    "": "",
    "faint": Markup(' class="faint" fill="{}"').format(COLOURS["faint"]),
    "strong": Markup(' class="strong" font-weight="bold"'),
    "small": Markup(' class="small" font-size="9"'),
    "small strong": Markup(' class="small strong" font-size="9" font-weight="bold"'),
    "title": Markup(' font-size="{}" font-weight="bold"').format(TITLE_SIZE),
}


def _draw_text(at: Point, text: str, *, anchor: str = "start", style: str = "", turn: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}"{}{}{}>{}</text>').format(
        *at, "" if anchor == "start" else Markup(' text-anchor="{}"').format(anchor),
        Markup(' transform="{}"').format(turn) if turn else "", STYLES[style], replace_unprintable(text),
    )  # fmt: skip


def replace_unprintable(text: str) -> str:
    """Replace characters that are not printable, so that the text can be an attribute's value."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def measure(text: str, size: float = SIZE) -> float:
    """Estimate the width of a text in the fonts of figures."""
    return size * sum(_measure_letter(letter) for letter in text)


def _measure_letter(letter: str) -> float:
    if letter in "iljtfrI.,:;|!'()[]/ ":
        return 0.33
    if ord(letter) > 0x2E80:  # Chinese, Japanese and Korean letters are as wide as high
        return 1.0
    return 0.85 if letter in "mwMW%@" else 0.7 if letter.isupper() else 0.57


def shorten(text: str, room: float) -> str:
    """Cut a text to the letters that fit into `room`."""
    if measure(text) <= room:
        return text
    while text and measure(text) + SIZE > room:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrap(text: str, room: float, size: float = SIZE) -> list[str]:
    """Split a text into lines that fit into `room`; a longer word keeps its own line."""
    lines: list[str] = []
    for word in text.split():
        if lines and measure(f"{lines[-1]} {word}", size) <= room:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines
