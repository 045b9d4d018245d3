"""Draw the parts of a whole side by side in a bar, without numbers: these stand beside it as text."""

from collections.abc import Sequence
from itertools import accumulate

from markupsafe import Markup

SERIES = 6
"""Colours in the style sheet."""
BAR = Markup(
    '<span class="bar chart" aria-hidden="true">'
    '<svg viewBox="0 0 100 8" preserveAspectRatio="none">{}</svg></span>'
)  # fmt: skip
PART = Markup('<rect x="{:.2f}" y="0" width="{:.2f}" height="8" class="series-{}"/>')


def draw_shares(parts: Sequence[float], whole: float = 0.0) -> Markup:
    """Draw the parts in their order; the rest of `whole` stays empty."""
    total = max(whole, sum(parts)) or 1.0
    widths = [100 * part / total for part in parts]
    starts = accumulate(widths, initial=0.0)
    return BAR.format(
        Markup("").join(
            PART.format(start, width, number % SERIES + 1)
            for number, (start, width) in enumerate(zip(starts, widths, strict=False))
        )
    )
