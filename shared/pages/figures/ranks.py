"""Draw quality by rank before and after reranking, which shows whether better documents moved to the front."""

from collections.abc import Mapping, Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure
from shared.statistics.significance import estimate_mean

NAME = "ranks"
BEFORE, AFTER = "before reranking", "after reranking"
HEIGHT = 260


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """The documents at one rank in one order."""

    rank: int
    """Counted from 1."""
    order: str
    """`BEFORE` (in the order of fusion) or `AFTER`."""
    value: float | None
    """Their mean quality, in [0, 1]."""
    low: float | None
    high: float | None
    """Bounds of Student's 95 % interval; None for fewer than two samples."""
    n: int
    """Samples with a scored document at this rank."""


def make_rows(order: str, qualities: Mapping[int, Sequence[float]]) -> list[RankRow]:
    """Make rows from the qualities of the documents, by rank."""
    means = {rank: estimate_mean(qualities[rank]) for rank in sorted(qualities)}
    return [
        RankRow(rank=rank, order=order, value=found.value, low=found.low, high=found.high, n=found.n)
        for rank, found in means.items()
    ]


def draw(rows: Sequence[RankRow], *, title: str = "Quality by rank", name: str = NAME) -> Figure:
    """Draw one line for each order.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    orders = [BEFORE, AFTER]
    base = alt.Chart(style.make_data(map(style.to_plain, rows)), width=style.WIDTH, height=HEIGHT).encode(
        x=alt.X(
            "rank:O", title="Rank (1 is best)", axis=alt.Axis(labelAngle=0, grid=False), scale=alt.Scale(padding=0.4)
        ),
        xOffset=alt.XOffset("order:N", sort=orders, scale=alt.Scale(domain=orders, paddingInner=0.7)),
        color=alt.Color(
            "order:N",
            sort=orders,
            title=None,
            scale=alt.Scale(domain=orders, range=[style.ORANGE, style.BLUE]),
            legend=alt.Legend(orient="top"),
        ),
    )
    up = {"scale": alt.Scale(zero=False), "title": "Mean quality (0 to 1)"}
    layers = [
        base.mark_rule(size=2).encode(y=alt.Y("low:Q", **up), y2="high:Q"),
        base.mark_point(filled=True, size=85, opacity=1).encode(
            y=alt.Y("value:Q", **up),
            shape=alt.Shape("order:N", sort=orders, scale=alt.Scale(domain=orders, range=["square", "circle"])),
        ),
    ]
    note = f"{style.format_n((row.n for row in rows), 'samples a rank')}; lines: Student, 95 %"
    caption = "Each point is the mean quality of the documents at a rank, in the order of fusion and in the final one."
    return style.make_figure(name, title, [note], caption, alt.layer(*layers), rows)
