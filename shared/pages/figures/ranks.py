"""Quality by rank before and after reranking: whether the better documents came to the front."""

from collections.abc import Mapping, Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure
from shared.statistics.significance import mean

NAME = "ranks"
BEFORE, AFTER = "before reranking", "after reranking"
HEIGHT = 260


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that stood at one rank."""

    rank: int
    """From 1."""
    order: str
    """`BEFORE` (as fusion ordered them) or `AFTER`."""
    value: float | None
    """Their mean quality, in [0, 1]."""
    low: float | None
    high: float | None
    """Student's interval at 95 %; None: fewer than two."""
    n: int
    """Samples that had a document with a quality at this rank."""


def of(order: str, qualities: Mapping[int, Sequence[float]]) -> list[Row]:
    """Rows from the qualities of the documents by rank."""
    means = {rank: mean(qualities[rank]) for rank in sorted(qualities)}
    return [
        Row(rank=rank, order=order, value=found.value, low=found.low, high=found.high, n=found.n)
        for rank, found in means.items()
    ]


def chart(rows: Sequence[Row], *, title: str = "Quality by rank", name: str = NAME) -> Figure:
    """One line for each order.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    orders = [BEFORE, AFTER]
    base = alt.Chart(look.values(map(look.plain, rows)), width=look.WIDTH, height=HEIGHT).encode(
        x=alt.X(
            "rank:O", title="Rank (1 is best)", axis=alt.Axis(labelAngle=0, grid=False), scale=alt.Scale(padding=0.4)
        ),
        xOffset=alt.XOffset("order:N", sort=orders, scale=alt.Scale(domain=orders, paddingInner=0.7)),
        color=alt.Color(
            "order:N",
            sort=orders,
            title=None,
            scale=alt.Scale(domain=orders, range=[look.ORANGE, look.BLUE]),
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
    said = f"{look.numbered((row.n for row in rows), 'samples a rank')}; lines: Student, 95 %"
    caption = "Each point is the mean quality of the documents at a rank, in the order of fusion and in the final one."
    return look.figure(name, title, [said], caption, alt.layer(*layers), rows)
