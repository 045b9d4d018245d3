"""Draw accuracy against judge calls saved, beside what random choice would give."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "pareto"
HEIGHT = 260
FRONT, BEHIND = "nothing else is better in both", "something else is better"
CHANCE = "as many questions, drawn by chance"


class ParetoRow(msgspec.Struct, frozen=True, kw_only=True):
    """One threshold of routing."""

    threshold: float
    """A question that is hard with a lower probability is scored by rules."""
    saved: float
    """Share of the judge calls that are saved, in [0, 1]."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval."""
    n: int
    """Number of items."""
    chance_saved: float | None = None
    chance_value: float | None = None
    """Both values if the same number of questions were drawn at random; None: not known."""


def find_front(rows: Sequence[ParetoRow]) -> list[bool]:
    """Return which rows are on the Pareto front: no other row is better in one of the two and as good in the other."""
    return [row.value is not None and not any(_dominates(other, row) for other in rows) for row in rows]


def draw(rows: Sequence[ParetoRow], *, title: str = "Accuracy against judge calls saved", name: str = NAME) -> Figure:
    """Draw a point for each threshold.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    # The interval of no observation is [0, 1]: drawn without a value it would only mislead.
    marked = [(row, first) for row, first in zip(rows, find_front(rows), strict=True) if row.value is not None]
    data = [
        {**style.to_plain(row), "kind": FRONT if first else BEHIND, "said": f"{row.threshold:.2g}"}
        for row, first in marked
    ]
    base = alt.Chart(style.make_data(data), width=style.WIDTH, height=HEIGHT)
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
            legend=alt.Legend(orient="top", labelLimit=style.WIDTH),
        ),
        color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[style.BLUE, style.ORANGE])),
    )
    chance = alt.X("chance_saved:Q", scale=alt.Scale(domain=[0, 1], padding=8))
    layers = [
        base.mark_line(color=style.GREY, strokeDash=[5, 4]).encode(x=chance, y=alt.Y("chance_value:Q", **up)),
        base.mark_rule(color=style.GREY, size=1.5).encode(x=across, y=alt.Y("low:Q", **up), y2="high:Q"),
        points,
        base.mark_text(align="left", dx=7, dy=-7, fontSize=10.5).encode(
            x=across, y=alt.Y("value:Q", **up), text="said:N"
        ),
    ]
    note = f"{style.format_n((row.n for row in rows), 'items')}; lines: 95 %; numbers: thresholds; dashed: {CHANCE}"
    caption = "Each point is a threshold of routing: further right the judge is asked less, further down it is missed."
    return style.make_figure(name, title, [note], caption, alt.layer(*layers), rows)


def _dominates(other: ParetoRow, row: ParetoRow) -> bool:
    if other.value is None or row.value is None or other.value < row.value or other.saved < row.saved:
        return False
    return other.value > row.value or other.saved > row.saved
