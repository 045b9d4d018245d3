"""Draw bars for progress and for a share with its interval."""

from markupsafe import Markup

WIDTH, HEIGHT = 100, 10
"""Size of the viewBox; bars are stretched to their column."""
BAR = Markup(
    '<span class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<rect class="done" width="{done:.2f}" height="10"/><rect class="failed" x="{done:.2f}" width="{failed:.2f}"'
    ' height="10"/></svg></span>'
)
RANGE = Markup(
    '<span class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<rect class="range" x="{low:.2f}" width="{width:.2f}" height="10"/><rect class="point" x="{point:.2f}" width="1"'
    ' height="10"/></svg></span>'
)


def draw_progress(done: int, total: int, failed: int = 0) -> Markup:
    """Draw how many of `total` are done, and how many of those failed; the bar is empty if `total` is 0."""
    label = f"{done} of {total}" + (f", {failed} failed" if failed else "")
    share = WIDTH / total if total else 0
    return BAR.format(label=label, done=(done - failed) * share, failed=failed * share)


def draw_interval(value: float, low: float, high: float) -> Markup:
    """Draw a share and its interval, all in [0, 1], on a bar from 0 to 100 %."""
    label = f"{100 * value:.1f} %, between {100 * low:.1f} and {100 * high:.1f} %"
    point = min(WIDTH * value, WIDTH - 1)
    return RANGE.format(label=label, low=WIDTH * low, width=WIDTH * (high - low), point=point)
