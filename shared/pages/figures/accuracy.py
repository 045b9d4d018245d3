"""Accuracy of several systems: a point each, with its interval, and the published figure where there is one."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "accuracy"
LINE = 26
"""Height of a system in units of the SVG."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One system."""

    label: str
    """Such as the pipeline; rows are drawn in the order given."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of the interval, in [0, 1]; None: none is drawn."""
    n: int
    """Items that the share is of."""
    group: str = ""
    """Such as the dataset: each group is a panel of its own."""
    published: float | None = None
    """What somebody else reports, in [0, 1]; drawn beside it as a hollow diamond."""


def chart(
    rows: Sequence[Row],
    *,
    title: str = "Accuracy",
    name: str = NAME,
    interval: str = "Wilson, 95 %",
    axis: str = "Accuracy (% of items)",
    of: str = "items answered correctly",
) -> Figure:
    """A panel for each group; `interval` says what the lines are, `axis` and `of` what the shares are of.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    base = alt.Chart(height=alt.Step(LINE), width=look.WIDTH).encode(
        y=alt.Y("label:N", sort=list(dict.fromkeys(row.label for row in rows)), title=None)
    )
    across = {"scale": alt.Scale(zero=False, nice=True), "axis": alt.Axis(format=".0%", title=axis)}
    layers = [
        base.mark_rule(color=look.BLUE, size=2).encode(x=alt.X("low:Q", **across), x2="high:Q"),
        base.mark_point(filled=True, size=75, color=look.BLUE, opacity=1).encode(x=alt.X("value:Q", **across)),
        base.mark_text(align="left").encode(x=alt.value(look.WIDTH + 10), text="said:N"),
    ]
    if published := any(row.published is not None for row in rows):
        diamond = base.mark_point(shape="diamond", size=90, color=look.VERMILLION, strokeWidth=2, opacity=1)
        layers.insert(2, diamond.encode(x=alt.X("published:Q", **across)))
    drawn = alt.layer(*layers, data=look.values(map(_drawn, rows)))
    groups = list(dict.fromkeys(row.group for row in rows))
    if len(groups) > 1:
        header = alt.Header(labelOrient="top", labelAnchor="start", title=None)
        drawn = drawn.facet(row=alt.Row("group:N", sort=groups, header=header), spacing=18)
        drawn = drawn.resolve_scale(y="independent")
    said = f"{look.numbered((row.n for row in rows), 'items')}; lines: {interval}"
    said += "; hollow diamonds: published" if published else ""
    caption = f"Each point is the share of {of}, its line the interval"
    caption += "; hollow diamonds are figures that others published." if published else "."
    return look.figure(name, title, [said], caption, drawn, rows)


def _drawn(row: Row) -> dict[str, object]:
    # Of nothing everything is possible: an interval without a value would only be in the way.
    known = row if row.value is not None else msgspec.structs.replace(row, low=None, high=None)
    return {**look.plain(known), "said": look.percent(row.value, row.low, row.high)}
