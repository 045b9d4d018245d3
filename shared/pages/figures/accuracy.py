"""Draw the accuracy of several systems: a point each with its interval."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "accuracy"
LINE = 26
"""Height of a system's line in units of the SVG."""


class AccuracyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of one system."""

    label: str
    """The system, such as a pipeline; rows are drawn in the given order."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of the interval, in [0, 1]; None: no interval is drawn."""
    n: int
    """Number of items."""
    group: str = ""
    """The panel, such as a dataset."""


def draw(
    rows: Sequence[AccuracyRow],
    *,
    title: str = "Accuracy",
    name: str = NAME,
    interval: str = "Wilson, 95 %",
    axis: str = "Accuracy (% of items)",
    of: str = "items answered correctly",
) -> Figure:
    """Draw a panel for each group; `interval` names the kind of interval, `axis` and `of` what the shares are of.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    base = alt.Chart(height=alt.Step(LINE), width=style.WIDTH).encode(
        y=alt.Y("label:N", sort=list(dict.fromkeys(row.label for row in rows)), title=None)
    )
    across = {"scale": alt.Scale(zero=False, nice=True), "axis": alt.Axis(format=".0%", title=axis)}
    layers = [
        base.mark_rule(color=style.BLUE, size=2).encode(x=alt.X("low:Q", **across), x2="high:Q"),
        base.mark_point(filled=True, size=75, color=style.BLUE, opacity=1).encode(x=alt.X("value:Q", **across)),
        base.mark_text(align="left").encode(x=alt.value(style.WIDTH + 10), text="said:N"),
    ]
    drawn = alt.layer(*layers, data=style.make_data(map(_make_datum, rows)))
    groups = list(dict.fromkeys(row.group for row in rows))
    if len(groups) > 1:
        header = alt.Header(labelOrient="top", labelAnchor="start", title=None)
        drawn = drawn.facet(row=alt.Row("group:N", sort=groups, header=header), spacing=18)
        drawn = drawn.resolve_scale(y="independent")
    note = f"{style.format_n((row.n for row in rows), 'items')}; lines: {interval}"
    caption = f"Each point is the share of {of}, its line the interval."
    return style.make_figure(name, title, [note], caption, drawn, rows)


def _make_datum(row: AccuracyRow) -> dict[str, object]:
    # The interval of no observation is [0, 1]: drawn without a value it would only mislead.
    known = row if row.value is not None else msgspec.structs.replace(row, low=None, high=None)
    return {**style.to_plain(known), "said": style.format_percent(row.value, row.low, row.high)}
