"""Draw a grid of figures as a table: the higher the figure, the darker its cell, and each cell may be a link.

A table, unlike a drawing, can be read aloud, followed and copied, and it scrolls on a small screen.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from shared.pages.formatting import escape_visible

STEPS = 8
"""Shades above the lightest one; the style sheet has a class for each."""


class HeatCell(NamedTuple):
    """The content of a cell."""

    value: float | None
    """From 0 to 1; None: there is no figure, and `said` tells why."""
    said: str
    """The number as text, or the reason why there is none."""
    detail: str = ""
    """A second line, such as the interval."""
    href: str | None = None


Place = tuple[str, str]
"""Column, row."""


def draw_heat_table(
    figures: Mapping[Place, HeatCell], columns: tuple[str, Sequence[str]], rows: tuple[str, Sequence[str]],
    *, caption: str, low: float, high: float,
) -> Markup:  # fmt: skip
    """Draw the table.

    Args:
        columns: name and values of the horizontal axis.
        rows: name and values of the vertical axis.
        low: the figure with the lightest shade.
        high: the figure with the darkest shade.
    """
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(escape_visible(value)) for value in columns[1])
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(
            escape_visible(row),
            Markup("").join(_draw_cell(figures.get((column, row)), low, high) for column in columns[1]),
        )
        for row in rows[1]
    )
    corner = Markup('<th scope="col">{}&nbsp;↓ {}&nbsp;→</th>').format(
        escape_visible(rows[0]), escape_visible(columns[0])
    )
    return Markup(
        '<div class="wide"><table class="heat"><caption>{}</caption><thead><tr>{}{}</tr></thead>'
        "<tbody>\n{}</tbody></table></div>"
    ).format(escape_visible(caption), corner, heads, body)


def compute_shade(value: float, low: float, high: float) -> int:
    """Return the shade of a value, from 0 (the lightest) to `STEPS`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return round(STEPS * min(max(share, 0.0), 1.0))


def _draw_cell(figure: HeatCell | None, low: float, high: float) -> Markup:
    if figure is None:
        return Markup('<td class="missing">–</td>')
    label = escape_visible(figure.said)
    if figure.href is not None:
        label = Markup('<a href="{}">{}</a>').format(figure.href, label)
    kind = "missing" if figure.value is None else f"heat-{compute_shade(figure.value, low, high)}"
    detail = Markup('<span class="detail">{}</span>').format(escape_visible(figure.detail)) if figure.detail else ""
    return Markup('<td class="{}">{}{}</td>').format(kind, label, detail)
