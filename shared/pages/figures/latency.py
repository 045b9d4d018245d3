"""Draw the latency by stage: how long calls waited, and how long they ran."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "latency"
WAITED, RAN = "waited in the queue", "ran"
LINE = 40
MIN_SECONDS = 1e-4
"""The shortest time that is drawn: a logarithmic axis has no 0, and clocks are not more exact."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles of the times of one role's calls, in seconds."""

    stage: str
    part: str
    """`WAITED` or `RAN`."""
    n: int
    """Number of calls."""
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


def make_rows(stage: str, part: str, seconds: Sequence[float]) -> list[LatencyRow]:
    """Make the row of these times; without any time there is no row."""
    if not seconds:
        return []
    import numpy as np

    p5, p25, p50, p75, p95 = (max(MIN_SECONDS, float(value)) for value in np.quantile(seconds, QUANTILES))
    return [LatencyRow(stage=stage, part=part, n=len(seconds), p5=p5, p25=p25, p50=p50, p75=p75, p95=p95)]


def draw(rows: Sequence[LatencyRow], *, title: str = "Latency by stage", name: str = NAME) -> Figure:
    """Draw a box between the quartiles, a tick at the median and a line from the 5th to the 95th percentile.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    parts = [WAITED, RAN]
    base = alt.Chart(
        style.make_data(map(_make_datum, rows)), width=style.WIDTH, height=alt.Step(LINE, **{"for": "position"})
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
        scale=alt.Scale(domain=parts, range=[style.ORANGE, style.BLUE]),
        legend=alt.Legend(orient="top"),
    )
    layers = [
        base.mark_rule(color=style.INK, size=1.2).encode(x=alt.X("p5:Q", **across), x2="p95:Q"),
        base.mark_bar(size=9).encode(x=alt.X("p25:Q", **across), x2="p75:Q", color=colour),
        base.mark_tick(color=style.BLACK, thickness=2.5, size=13).encode(x=alt.X("p50:Q", **across)),
        base.mark_text(align="left", fontSize=10.5).encode(x=alt.value(style.WIDTH + 10), text="said:N"),
    ]
    note = f"{style.format_n((row.n for row in rows), 'calls a stage')}; numbers: median; lines: 5th to 95th percentile"
    caption = "Each box spans the middle half of the calls, its tick is the median."
    return style.make_figure(name, title, [note], caption, alt.layer(*layers), rows)


def _make_datum(row: LatencyRow) -> dict[str, object]:
    return {**style.to_plain(row), "said": f"{row.p50:.3g} s, n = {row.n:,}"}
