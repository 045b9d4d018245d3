"""How many items would tell two systems apart, if they differ as they did on those that were asked."""

import math

from shared.statistics.shares import Values
from shared.statistics.significance import LEVEL

POWER = 0.8
"""Probability that such a difference is found (Cohen 1988, section 2.4)."""


def needed(differences: Values, power: float = POWER, level: float = LEVEL) -> int | None:
    """Items for a two-sided paired test of such differences; None where their mean is 0.

    Connor (1987) for one verdict an item, where the mean square is the share of items that differ; it holds for shares
    of repeats in the same way. No correction for several tests is in it.

    Raises:
        ValueError: unless `power` and `level` are between 0 and 1.
    """
    if not (0 < power < 1 and 0 < level < 1):
        raise ValueError(f"`power` and `level` must be between 0 and 1, not {power} and {level}")
    count = sum(differences.values())
    mean = float(sum(value * n for value, n in differences.items()) / count) if count else 0.0
    if mean == 0:
        return None
    from scipy.stats import norm  # slow to import, and most processes never need it

    square = float(sum(value * value * n for value, n in differences.items()) / count)
    found, missed = float(norm.isf(level / 2)), float(norm.ppf(power))
    spread = found * math.sqrt(square) + missed * math.sqrt(max(0.0, square - mean * mean))
    return math.ceil((spread / mean) ** 2)
