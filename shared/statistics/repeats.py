"""Measure the spread between repeats: it shows the effect of sampling, not of the number of items."""

import statistics
from collections.abc import Sequence

import msgspec

SHARED = "repeats shared their replies (greedy decoding): they are one measurement, and std is 0 by construction"
DETERMINISTIC = "greedy decoding is deterministic: std is 0 by construction, unless another stage or the server varies"
JUDGED = (
    "greedy decoding: repeats differ only where the judge model, asked anew in each, led to another context; std is of"
    " that alone"
)
CLUSTERED = "intervals count items, not samples: repeats of one item are not independent"


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy or another measure by repeat, over the items that have a value in every repeat: else repeats would
    differ because they asked other items. Its standard deviation is not a confidence interval over items.
    """

    accuracies: tuple[float | None, ...]
    """Share of correct answers, or mean of the measure, by repeat; None: the repeat has no value, or no item has a
    value in every repeat that has any."""
    items: int
    """Number of these items."""
    mean: float | None
    """Mean over the repeats that have a value."""
    std: float | None
    """Sample standard deviation (ddof 1) over these repeats; None for fewer than two."""


def explain_repeats(*, greedy: bool, shared: bool, judged: bool = False) -> str:
    """Return what a reader must know about the repeats.

    Args:
        greedy: answers were decoded greedily.
        shared: equal calls of several repeats shared their replies.
        judged: the judge model was called anew in each repeat.
    """
    if greedy and judged:
        return JUDGED
    if greedy:
        return SHARED if shared else DETERMINISTIC
    return CLUSTERED


def measure_spread(counts: Sequence[tuple[float, int]]) -> Repeats:
    """Measure the spread of (correct, graded) answers by repeat; for a score the first is the sum of its values.

    The answers are those to the items that have a value in every repeat that has any.
    """
    accuracies = tuple(right / graded if graded else None for right, graded in counts)
    known = [each for each in accuracies if each is not None]
    return Repeats(
        accuracies=accuracies,
        items=max((graded for _, graded in counts), default=0),
        mean=statistics.fmean(known) if known else None,
        std=statistics.stdev(known) if len(known) > 1 else None,
    )
