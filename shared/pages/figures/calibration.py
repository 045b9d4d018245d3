"""Calibration of the judge: what its ratings are worth against something that is known."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure
from shared.statistics.intervals import wilson
from shared.statistics.significance import mean

NAME = "calibration"
SIDE = 320
MOST = 11
"""Distinct qualities that stay as they are; more are put into as many bins."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What was rated alike."""

    quality: float
    """By the judge, (rating - 1) / 4, in [0, 1]."""
    value: float | None
    """Mean of what is true of it, in [0, 1]."""
    low: float | None
    high: float | None
    """95 %: Wilson's interval where what is true is yes or no, else Student's."""
    n: int


def of(pairs: Iterable[tuple[float, float]]) -> list[Row]:
    """Rows from (quality, what is true), both in [0, 1]."""
    known = list(pairs)
    many = len({quality for quality, _ in known}) > MOST
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for quality, true in known:
        alike[round(quality * (MOST - 1)) / (MOST - 1) if many else quality].append(true)
    return [_row(quality, alike[quality]) for quality in sorted(alike)]


def _row(quality: float, true: Sequence[float]) -> Row:
    found = wilson(round(sum(true)), len(true)) if set(true) <= {0.0, 1.0} else mean(true)
    return Row(quality=quality, value=found.value, low=found.low, high=found.high, n=len(true))


def chart(
    rows: Sequence[Row],
    *,
    truth: str = "answers that were correct",
    counted: str = "samples",
    title: str = "Calibration of the judge",
    name: str = NAME,
) -> Figure:
    """`truth` says what the qualities are held against, `counted` what n counts.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    scale = alt.Scale(domain=[0, 1], padding=8, nice=False)
    base = alt.Chart(look.values({**look.plain(row), "said": f"{row.n:,}"} for row in rows), width=SIDE, height=SIDE)
    across = alt.X("quality:Q", title="Quality by the judge (0 to 1)", scale=scale)
    up = {"scale": scale, "title": f"Share of {truth} (0 to 1)"}
    ideal = alt.Chart(look.values([{"quality": end, "value": end} for end in (0, 1)]))
    layers = [
        ideal.mark_line(color=look.GREY, strokeDash=[5, 4]).encode(x=across, y=alt.Y("value:Q", **up)),
        base.mark_rule(color=look.BLUE, size=2).encode(x=across, y=alt.Y("low:Q", **up), y2="high:Q"),
        base.mark_point(filled=True, size=80, color=look.BLUE, opacity=1).encode(x=across, y=alt.Y("value:Q", **up)),
        base.mark_text(align="left", dx=8, fontSize=10.5).encode(x=across, y=alt.Y("value:Q", **up), text="said:N"),
    ]
    said = f"{look.numbered([sum(row.n for row in rows)], counted)}, at each point its own; lines: 95 %"
    caption = f"Each point is the share of {truth} among what the judge rated alike; on the dashed line they are equal."
    return look.figure(name, title, [said], caption, alt.layer(*layers), rows)
