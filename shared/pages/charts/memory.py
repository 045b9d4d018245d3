"""Draw the memory that a device would hold against its budget."""

from collections.abc import Mapping
from itertools import accumulate

from markupsafe import Markup

WIDTH = 400
SERIES = 6
"""Colours in the style sheet."""
CHART = Markup(
    '<span class="chart memory"><svg viewBox="0 0 400 24" preserveAspectRatio="none" role="img" aria-label="{}">'
    "{}</svg></span>"
)
PART = Markup('<rect x="{:.1f}" y="5" width="{:.1f}" height="14" class="series-{}"/>')
BEYOND = Markup('<rect x="{:.1f}" y="1" width="{:.1f}" height="3" class="wrong"/>')
BUDGET = Markup('<line x1="{0:.1f}" y1="0" x2="{0:.1f}" y2="24" class="threshold"/>')


def draw_memory(parts: Mapping[str, int], budget_mib: int, scale_mib: int) -> Markup:
    """Draw the parts side by side in MiB, the budget as a line, and mark what exceeds it.

    `scale_mib` is the width of the whole chart.
    """
    unit = WIDTH / max(scale_mib, 1)
    starts = list(accumulate(parts.values(), initial=0))
    drawn = [
        PART.format(unit * start, unit * mib, number % SERIES + 1)
        for number, (start, mib) in enumerate(zip(starts, parts.values(), strict=False))
    ]
    if starts[-1] > budget_mib:
        drawn.append(BEYOND.format(unit * budget_mib, unit * (starts[-1] - budget_mib)))
    drawn.append(BUDGET.format(min(unit * budget_mib, WIDTH - 1)))
    label = ", ".join(f"{name} {mib:,} MiB" for name, mib in parts.items())
    return CHART.format(f"{label}; budget {budget_mib:,} MiB", Markup("").join(drawn))
