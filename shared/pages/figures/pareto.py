"""What sparing the judge costs: accuracy against judge calls saved, and whether chance would do as well."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "pareto"
HEIGHT = 260
FRONT, BEHIND = "nothing else is better in both", "something else is better"
CHANCE = "as many questions, drawn by chance"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One threshold of routing."""

    threshold: float
    """Probability of being hard below which a question is scored by rules."""
    saved: float
    """Share of the judge calls that are not made, in [0, 1]."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval."""
    n: int
    """Items that the share is of."""
    chance_saved: float | None = None
    chance_value: float | None = None
    """Both, were as many questions drawn at random; None: not known."""


def front(rows: Sequence[Row]) -> list[bool]:
    """Which rows are on the Pareto front: no other saves as much, is as accurate, and is better in one of the two."""
    return [row.value is not None and not any(_beats(other, row) for other in rows) for row in rows]


def chart(rows: Sequence[Row], *, title: str = "Accuracy against judge calls saved", name: str = NAME) -> Figure:
    """A point each threshold.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    base = alt.Chart(look.values(_drawn(rows)), width=look.WIDTH, height=HEIGHT)
    percent = {"axis": alt.Axis(format=".0%")}
    across = alt.X("saved:Q", title="Judge calls saved (%)", scale=alt.Scale(domain=[0, 1], padding=8), **percent)
    up = {"title": "Accuracy (% of items)", "scale": alt.Scale(zero=False, nice=True), **percent}
    kinds = [FRONT, BEHIND]
    points = base.mark_point(size=75, filled=True, opacity=1).encode(
        x=across,
        y=alt.Y("value:Q", **up),
        shape=alt.Shape(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=kinds, range=["circle", "diamond"]),
            legend=alt.Legend(orient="top", labelLimit=look.WIDTH),
        ),
        color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[look.BLUE, look.ORANGE])),
    )
    chance = alt.X("chance_saved:Q", scale=alt.Scale(domain=[0, 1], padding=8))
    layers = [
        base.mark_line(color=look.GREY, strokeDash=[5, 4]).encode(x=chance, y=alt.Y("chance_value:Q", **up)),
        base.mark_rule(color=look.GREY, size=1.5).encode(x=across, y=alt.Y("low:Q", **up), y2="high:Q"),
        points,
        base.mark_text(align="left", dx=7, dy=-7, fontSize=10.5).encode(
            x=across, y=alt.Y("value:Q", **up), text="said:N"
        ),
    ]
    said = f"{look.numbered((row.n for row in rows), 'items')}; lines: 95 %; numbers: thresholds; dashed: {CHANCE}"
    caption = "Each point is a threshold of routing: further right the judge is asked less, further down it is missed."
    return look.figure(name, title, [said], caption, alt.layer(*layers), rows)


def _drawn(rows: Sequence[Row]) -> list[dict[str, object]]:
    # Of nothing everything is possible: an interval without a value would only be in the way.
    marked = [(row, first) for row, first in zip(rows, front(rows), strict=True) if row.value is not None]
    return [
        {**look.plain(row), "kind": FRONT if first else BEHIND, "said": f"{row.threshold:.2g}"} for row, first in marked
    ]


def _beats(other: Row, row: Row) -> bool:
    if other.value is None or row.value is None or other.value < row.value or other.saved < row.saved:
        return False
    return other.value > row.value or other.saved > row.saved
