"""Draw how samples ended, one panel for each system."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure
from shared.statistics.intervals import estimate_share

NAME = "endings"
LINE = 20
PANEL = 170
COLUMNS = 4
CORRECT = "correct"


class EndingRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples of one system had one ending."""

    label: str
    """The system; panels are drawn in the given order."""
    ending: str
    """The ending, such as "correct" or "arithmetic"; bars are drawn in the given order."""
    count: int
    """Samples with this ending."""
    n: int
    """All samples of the system."""
    value: float
    """`count` / `n`, in [0, 1]."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval; None: no interval is drawn."""


def make_rows(label: str, counts: Mapping[str, int], items: int | None = None) -> list[EndingRow]:
    """Make a system's rows from its counts, with Wilson's 95 % interval over `items` (default: as many as samples).

    With repeats give the number of items: repeats of an item are not independent observations. If items have different
    numbers of samples, give 0: a share of samples is then no mean over items, and has no interval.
    """
    n = sum(counts.values())
    independent = n if items is None else items
    found: list[EndingRow] = []
    for ending, count in counts.items():
        share = Fraction(count, n or 1)
        interval = estimate_share({share: independent}) if independent else None
        found.append(
            EndingRow(
                label=label,
                ending=ending,
                count=count,
                n=n,
                value=float(share),
                low=interval.low if interval else None,
                high=interval.high if interval else None,
            )
        )
    return found


def draw(rows: Sequence[EndingRow], *, title: str = "How samples ended", name: str = NAME) -> Figure:
    """Draw a panel for each system, with a bar for each ending that any system has.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    labels = list(dict.fromkeys(row.label for row in rows))
    seen = {row.ending for row in rows if row.count}
    drawn = [row for row in rows if row.ending in seen]
    shape = {"height": alt.Step(LINE), "width": PANEL if len(labels) > 1 else style.WIDTH}
    base = alt.Chart(**shape).encode(
        y=alt.Y("ending:N", sort=list(dict.fromkeys(row.ending for row in drawn)), title=None)
    )
    end = max((row.high if row.high is not None else row.value for row in drawn), default=1.0)
    room = alt.Scale(domain=[0, min(1.0, end) * (1.45 if len(labels) > 1 else 1.15)], nice=False, zero=True)
    across = {"scale": room, "axis": alt.Axis(format=".0%", title="Share of samples (%)", tickCount=4)}
    dark = alt.condition(f"datum.ending === '{CORRECT}'", alt.value(style.BLUE), alt.value(style.ORANGE))
    layers = [
        base.mark_bar(height=LINE * 0.65).encode(x=alt.X("value:Q", **across), color=dark),
        base.mark_rule(color=style.INK, size=1.4).encode(x=alt.X("low:Q", **across), x2="high:Q"),
        base.mark_text(align="left", dx=5, fontSize=10.5).encode(x=alt.X("end:Q", **across), text="said:N"),
    ]
    panels = alt.layer(*layers, data=style.make_data(map(_make_datum, drawn)))
    if len(labels) > 1:
        header = alt.Header(title=None, labelAnchor="start", labelLimit=PANEL)
        panels = panels.facet(facet=alt.Facet("label:N", sort=labels, header=header), columns=COLUMNS, spacing=22)
    note = style.format_n((row.n for row in rows), "samples a system")
    note += "; lines: Wilson, 95 %" if any(row.low is not None for row in rows) else ""
    caption = "Each bar is the share of a system's samples that ended in this way; what no system has is left out."
    return style.make_figure(name, title, [note], caption, panels, rows)


def _make_datum(row: EndingRow) -> dict[str, object]:
    end = row.value if row.high is None else row.high
    return {**style.to_plain(row), "end": end, "said": style.format_percent(row.value)}
