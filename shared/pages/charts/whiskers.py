"""Draw a figure with its interval as a dot on a line as wide as its column."""

from markupsafe import Markup

LINE = Markup(
    '<svg class="whisker" aria-hidden="true" focusable="false"><line class="axis" x1="0%" x2="100%" y1="8" y2="8"/>{}'
    '<line class="span" x1="{:.2f}%" x2="{:.2f}%" y1="8" y2="8"/><circle cx="{:.2f}%" cy="8" r="4"/></svg>'
)
ZERO = Markup('<line class="zero" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="16"/>')


def draw_whisker(value: float, low: float, high: float, *, start: float = 0.0, end: float = 1.0) -> Markup:
    """Draw `value` between `low` and `high` on a scale from `start` to `end`, with a line at 0 if that is inside.

    It is hidden from screen readers, because the figures stand beside it.
    """

    def place(of: float) -> float:
        return 100 * min(max((of - start) / (end - start), 0.0), 1.0)

    zero = ZERO.format(place(0.0)) if start < 0 < end else Markup("")
    return LINE.format(zero, place(low), place(high), place(value))
