"""Estimate how many items would separate two systems whose differences stay as observed."""

import math

from shared.statistics.shares import Values
from shared.statistics.significance import LEVEL

POWER = 0.8
"""Probability of detecting such a difference (Cohen 1988, section 2.4)."""


def estimate_needed_items(differences: Values, power: float = POWER, level: float = LEVEL) -> int | None:
    """Estimate the items that a two-sided paired test of such differences needs; None if their mean is 0.

    The formula is Connor's (1987) for single verdicts, where the mean square is the share of differing items; it holds
    for shares of repeats in the same way. It does not correct for several tests.

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
