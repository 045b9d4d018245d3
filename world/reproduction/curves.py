"""Accuracy, or another share, over something that is varied: a line for each system."""

from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

HEIGHT = 280


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One system at one value."""

    x: float
    label: str
    """The system; told apart by colour, dash and shape, in the order given."""
    value: float | None
    """Accuracy in [0, 1]."""
    low: float
    high: float
    """Wilson's interval."""
    n: int


def chart(
    rows: Sequence[Row], *, name: str, title: str, axis: str, share: str = "Accuracy", of: str = "items"
) -> Figure:
    """`axis` says what is varied, with its unit; `share` what is drawn over it, and `of` what that is a share of.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    labels = list(dict.fromkeys(row.label for row in rows))
    base = alt.Chart(look.values(map(look.plain, rows)), width=look.WIDTH, height=HEIGHT).encode(
        x=alt.X("x:Q", title=axis, scale=alt.Scale(padding=12, nice=False), axis=alt.Axis(grid=False)),
        color=_told(alt.Color, alt, labels, look.PALETTE),
    )
    up = {"axis": alt.Axis(format=".0%", title=f"{share} (% of {of})"), "scale": alt.Scale(domain=[0, 1])}
    layers = [
        base.mark_rule(size=1.4, opacity=0.6).encode(y=alt.Y("low:Q", **up), y2="high:Q"),
        base.mark_line().encode(y=alt.Y("value:Q", **up), strokeDash=_told(alt.StrokeDash, alt, labels, look.DASHES)),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=alt.Y("value:Q", **up), shape=_told(alt.Shape, alt, labels, look.SHAPES)
        ),
    ]
    said = f"{look.numbered((row.n for row in rows), f'{of} a point')}; lines: Wilson, 95 %"
    caption = f"Each point is the {share.lower()} of a system; {axis[0].lower()}{axis[1:]} grows to the right."
    return look.figure(name, title, [said], caption, alt.layer(*layers), rows)


def _told(channel: type, alt: object, labels: Sequence[str], looks: Sequence[object]) -> object:
    """One legend for colour, dash and shape."""
    scale = alt.Scale(domain=labels, range=list(looks[: len(labels)]))  # type: ignore[attr-defined]
    return channel("label:N", title=None, sort=list(labels), scale=scale)
