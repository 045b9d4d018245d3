"""A grid of figures as a table whose cells are the darker, the higher the figure: each is a link with its number.

A table and no drawing: its numbers can be read aloud, followed and copied, and on a small screen it scrolls.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from shared.pages.texts import visible

STEPS = 8
"""Shades above the lightest one; the style sheet has a class for each."""


class Figure(NamedTuple):
    """What stands in a cell."""

    value: float | None
    """From 0 to 1; None: there is no figure, and `said` is why."""
    said: str
    """The number as it is shown, or why there is none."""
    detail: str = ""
    """Such as its interval."""
    href: str | None = None


Place = tuple[str, str]
"""Column, row."""


def heat(
    figures: Mapping[Place, Figure], columns: tuple[str, Sequence[str]], rows: tuple[str, Sequence[str]],
    *, caption: str, low: float, high: float,
) -> Markup:  # fmt: skip
    """The table.

    Args:
        columns: name and values of the axis to the right.
        rows: name and values of the axis downwards.
        low: the figure of the lightest shade.
        high: of the darkest one.
    """
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(visible(value)) for value in columns[1])
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(
            visible(row), Markup("").join(_cell(figures.get((column, row)), low, high) for column in columns[1])
        )
        for row in rows[1]
    )
    corner = Markup('<th scope="col">{}&nbsp;↓ {}&nbsp;→</th>').format(visible(rows[0]), visible(columns[0]))
    return Markup(
        '<div class="wide"><table class="heat"><caption>{}</caption><thead><tr>{}{}</tr></thead>'
        "<tbody>\n{}</tbody></table></div>"
    ).format(visible(caption), corner, heads, body)


def shade(value: float, low: float, high: float) -> int:
    """From 0, the lightest, to `STEPS`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return round(STEPS * min(max(share, 0.0), 1.0))


def _cell(figure: Figure | None, low: float, high: float) -> Markup:
    if figure is None:
        return Markup('<td class="missing">–</td>')
    said = visible(figure.said)
    if figure.href is not None:
        said = Markup('<a href="{}">{}</a>').format(figure.href, said)
    kind = "missing" if figure.value is None else f"heat-{shade(figure.value, low, high)}"
    detail = Markup('<span class="detail">{}</span>').format(visible(figure.detail)) if figure.detail else ""
    return Markup('<td class="{}">{}{}</td>').format(kind, said, detail)
