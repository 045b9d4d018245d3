"""Draw the calibration of the judge: its ratings against a known truth."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure
from shared.statistics.intervals import wilson
from shared.statistics.significance import estimate_mean

NAME = "calibration"
SIDE = 320
MAX_DISTINCT = 11
"""Distinct qualities that are drawn as they are; more are put into this many bins."""


class CalibrationRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of the things that got one rating."""

    quality: float
    """The judge's rating as (rating - 1) / 4, in [0, 1]."""
    value: float | None
    """Mean of the true values, in [0, 1]."""
    low: float | None
    high: float | None
    """Bounds of the 95 % interval: Wilson's if the truth is yes or no, else Student's."""
    n: int


def make_rows(pairs: Iterable[tuple[float, float]]) -> list[CalibrationRow]:
    """Make rows from pairs of quality and true value, both in [0, 1]."""
    known = list(pairs)
    many = len({quality for quality, _ in known}) > MAX_DISTINCT
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for quality, true in known:
        alike[round(quality * (MAX_DISTINCT - 1)) / (MAX_DISTINCT - 1) if many else quality].append(true)
    return [_make_row(quality, alike[quality]) for quality in sorted(alike)]


def _make_row(quality: float, true: Sequence[float]) -> CalibrationRow:
    found = wilson(round(sum(true)), len(true)) if set(true) <= {0.0, 1.0} else estimate_mean(true)
    return CalibrationRow(quality=quality, value=found.value, low=found.low, high=found.high, n=len(true))


def draw(
    rows: Sequence[CalibrationRow],
    *,
    truth: str = "answers that were correct",
    counted: str = "samples",
    title: str = "Calibration of the judge",
    name: str = NAME,
) -> Figure:
    """Draw the chart; `truth` says what the qualities are compared with, `counted` what n counts.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    scale = alt.Scale(domain=[0, 1], padding=8, nice=False)
    base = alt.Chart(
        style.make_data({**style.to_plain(row), "said": f"{row.n:,}"} for row in rows), width=SIDE, height=SIDE
    )
    across = alt.X("quality:Q", title="Quality by the judge (0 to 1)", scale=scale)
    up = {"scale": scale, "title": f"Share of {truth} (0 to 1)"}
    ideal = alt.Chart(style.make_data([{"quality": end, "value": end} for end in (0, 1)]))
    layers = [
        ideal.mark_line(color=style.GREY, strokeDash=[5, 4]).encode(x=across, y=alt.Y("value:Q", **up)),
        base.mark_rule(color=style.BLUE, size=2).encode(x=across, y=alt.Y("low:Q", **up), y2="high:Q"),
        base.mark_point(filled=True, size=80, color=style.BLUE, opacity=1).encode(x=across, y=alt.Y("value:Q", **up)),
        base.mark_text(align="left", dx=8, fontSize=10.5).encode(x=across, y=alt.Y("value:Q", **up), text="said:N"),
    ]
    note = f"{style.format_n([sum(row.n for row in rows)], counted)}, at each point its own; lines: 95 %"
    caption = f"Each point is the share of {truth} among what the judge rated alike; on the dashed line they are equal."
    return style.make_figure(name, title, [note], caption, alt.layer(*layers), rows)
