"""How samples ended, pipeline beside pipeline: not only how many were wrong, but why."""

from collections.abc import Mapping, Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure
from shared.statistics.intervals import wilson

NAME = "endings"
LINE = 20
PANEL = 170
COLUMNS = 4
CORRECT = "correct"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One ending of one system."""

    label: str
    """The system: a panel each, in the order given."""
    ending: str
    """Such as "correct" or "arithmetic"; drawn in the order given."""
    count: int
    """Samples that ended so."""
    n: int
    """Samples of the system."""
    value: float
    """Share of its samples, in [0, 1]."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval; None: none is drawn."""


def of(label: str, counts: Mapping[str, int], items: int | None = None) -> list[Row]:
    """A system's rows from its counts, with Wilson's 95 % interval over `items` (default: as many as samples).

    Repeats of an item are no observations of their own: give the number of items where there are some.
    """
    n = sum(counts.values())
    independent = n if items is None else min(items, n)
    return [_row(label, ending, count, n, independent) for ending, count in counts.items()]


def _row(label: str, ending: str, count: int, n: int, independent: int) -> Row:
    share = count / n if n else 0.0
    bounds = wilson(round(share * independent), independent)
    low, high = min(bounds.low, share), max(bounds.high, share)
    return Row(label=label, ending=ending, count=count, n=n, value=share, low=low, high=high)


def chart(rows: Sequence[Row], *, title: str = "How samples ended", name: str = NAME) -> Figure:
    """A panel for each system, a bar for each ending that any of them has.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    labels = list(dict.fromkeys(row.label for row in rows))
    seen = {row.ending for row in rows if row.count}
    drawn = [row for row in rows if row.ending in seen]
    shape = {"height": alt.Step(LINE), "width": PANEL if len(labels) > 1 else look.WIDTH}
    base = alt.Chart(**shape).encode(
        y=alt.Y("ending:N", sort=list(dict.fromkeys(row.ending for row in drawn)), title=None)
    )
    end = max((row.high if row.high is not None else row.value for row in drawn), default=1.0)
    room = alt.Scale(domain=[0, min(1.0, end) * (1.45 if len(labels) > 1 else 1.15)], nice=False, zero=True)
    across = {"scale": room, "axis": alt.Axis(format=".0%", title="Share of samples (%)", tickCount=4)}
    dark = alt.condition(f"datum.ending === '{CORRECT}'", alt.value(look.BLUE), alt.value(look.ORANGE))
    layers = [
        base.mark_bar(height=LINE * 0.65).encode(x=alt.X("value:Q", **across), color=dark),
        base.mark_rule(color=look.INK, size=1.4).encode(x=alt.X("low:Q", **across), x2="high:Q"),
        base.mark_text(align="left", dx=5, fontSize=10.5).encode(x=alt.X("end:Q", **across), text="said:N"),
    ]
    panels = alt.layer(*layers, data=look.values(map(_drawn, drawn)))
    if len(labels) > 1:
        header = alt.Header(title=None, labelAnchor="start", labelLimit=PANEL)
        panels = panels.facet(facet=alt.Facet("label:N", sort=labels, header=header), columns=COLUMNS, spacing=22)
    said = f"{look.numbered((row.n for row in rows), 'samples a system')}; lines: Wilson, 95 %"
    caption = "Each bar is the share of a system's samples that ended in this way; what no system has is left out."
    return look.figure(name, title, [said], caption, panels, rows)


def _drawn(row: Row) -> dict[str, object]:
    end = row.value if row.high is None else row.high
    return {**look.plain(row), "end": end, "said": look.percent(row.value)}
