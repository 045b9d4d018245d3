"""Latency by stage: how long calls waited, and how long they ran."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "latency"
WAITED, RAN = "waited in the queue", "ran"
LINE = 40
LEAST = 1e-4
"""Seconds; a logarithmic axis has no 0, and clocks are not finer."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role; times in seconds."""

    stage: str
    part: str
    """`WAITED` or `RAN`."""
    n: int
    """Calls."""
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


def of(stage: str, part: str, seconds: Sequence[float]) -> list[Row]:
    """The row of these times; none where there is no time."""
    if not seconds:
        return []
    import numpy as np

    p5, p25, p50, p75, p95 = (max(LEAST, float(value)) for value in np.quantile(seconds, QUANTILES))
    return [Row(stage=stage, part=part, n=len(seconds), p5=p5, p25=p25, p50=p50, p75=p75, p95=p95)]


def chart(rows: Sequence[Row], *, title: str = "Latency by stage", name: str = NAME) -> Figure:
    """A box from the first to the third quartile, a tick at the median, a line from the 5th to the 95th percentile.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    parts = [WAITED, RAN]
    base = alt.Chart(
        look.values(map(_drawn, rows)), width=look.WIDTH, height=alt.Step(LINE, **{"for": "position"})
    ).encode(
        y=alt.Y("stage:N", sort=list(dict.fromkeys(row.stage for row in rows)), title=None),
        yOffset=alt.YOffset("part:N", sort=parts, scale=alt.Scale(domain=parts, paddingInner=0.35)),
    )
    across = {
        "scale": alt.Scale(type="log"),
        "axis": alt.Axis(title="Time of a call (s, logarithmic)", format="~g", tickCount=6),
    }
    colour = alt.Color(
        "part:N",
        sort=parts,
        title=None,
        scale=alt.Scale(domain=parts, range=[look.ORANGE, look.BLUE]),
        legend=alt.Legend(orient="top"),
    )
    layers = [
        base.mark_rule(color=look.INK, size=1.2).encode(x=alt.X("p5:Q", **across), x2="p95:Q"),
        base.mark_bar(size=9).encode(x=alt.X("p25:Q", **across), x2="p75:Q", color=colour),
        base.mark_tick(color=look.BLACK, thickness=2.5, size=13).encode(x=alt.X("p50:Q", **across)),
        base.mark_text(align="left", fontSize=10.5).encode(x=alt.value(look.WIDTH + 10), text="said:N"),
    ]
    said = f"{look.numbered((row.n for row in rows), 'calls a stage')}; numbers: median; lines: 5th to 95th percentile"
    caption = "Each box spans the middle half of the calls, its tick is the median."
    return look.figure(name, title, [said], caption, alt.layer(*layers), rows)


def _drawn(row: Row) -> dict[str, object]:
    return {**look.plain(row), "said": f"{row.p50:.3g} s, n = {row.n:,}"}
