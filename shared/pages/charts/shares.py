"""A bar of parts, side by side: what of a whole came from where. The figures stand beside it as text."""

from collections.abc import Sequence
from itertools import accumulate

from markupsafe import Markup

SERIES = 6
"""Colours that there are."""
BAR = Markup(
    '<span class="bar chart" aria-hidden="true">'
    '<svg viewBox="0 0 100 8" preserveAspectRatio="none">{}</svg></span>'
)  # fmt: skip
PART = Markup('<rect x="{:.2f}" y="0" width="{:.2f}" height="8" class="series-{}"/>')


def shares(parts: Sequence[float], whole: float = 0.0) -> Markup:
    """The parts in their order; what they lack of `whole` stays empty."""
    total = max(whole, sum(parts)) or 1.0
    widths = [100 * part / total for part in parts]
    starts = accumulate(widths, initial=0.0)
    return BAR.format(
        Markup("").join(
            PART.format(start, width, number % SERIES + 1)
            for number, (start, width) in enumerate(zip(starts, widths, strict=False))
        )
    )
