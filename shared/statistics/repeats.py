"""The spread between repeats, which says how much sampling moves a figure, and nothing of how many items were asked."""

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
    """Accuracy, or another measure, by repeat. Its standard deviation is no interval of it: that is over items."""

    accuracies: tuple[float | None, ...]
    """Share of right answers, or mean of the measure, in each repeat, in order; None: it has no value."""
    mean: float | None
    """Of those that have one."""
    std: float | None
    """Sample standard deviation (ddof 1) over them; None: fewer than two."""


def repeated(*, greedy: bool, shared: bool, judged: bool = False) -> str:
    """What a reader must know of several repeats.

    Args:
        greedy: answers were decoded greedily.
        shared: equal calls of several repeats shared their replies.
        judged: the judge model was asked anew in each.
    """
    if greedy and judged:
        return JUDGED
    if greedy:
        return SHARED if shared else DETERMINISTIC
    return CLUSTERED


def spread(counts: Sequence[tuple[float, int]]) -> Repeats:
    """Of (right, graded) answers by repeat; of a score the first is the sum of its values."""
    accuracies = tuple(right / graded if graded else None for right, graded in counts)
    known = [each for each in accuracies if each is not None]
    return Repeats(
        accuracies=accuracies,
        mean=statistics.fmean(known) if known else None,
        std=statistics.stdev(known) if len(known) > 1 else None,
    )
