"""Whether two pipelines differ over the same items: McNemar's exact test, in words."""

from collections.abc import Mapping
from typing import NamedTuple

from scipy.stats import binomtest

from shared.statistics.significance import LEVEL

Verdicts = Mapping[int, bool]
"""Item (by position) -> whether its answer was right; items without a verdict are left out."""


class Pair(NamedTuple):
    """One pipeline against another, over the items that both have a verdict for."""

    gained: int
    """Items that only the first has right."""
    lost: int
    """Items that only the second has right."""
    items: int

    @property
    def p(self) -> float:
        """McNemar's exact test: the two-sided binomial one over the items that differ (1 where none does)."""
        differing = self.gained + self.lost
        return float(binomtest(self.gained, differing).pvalue) if differing else 1.0


def paired(first: Verdicts, second: Verdicts) -> Pair:
    """Count the items on which two pipelines differ."""
    both = first.keys() & second.keys()
    gained = sum(first[item] and not second[item] for item in both)
    lost = sum(second[item] and not first[item] for item in both)
    return Pair(gained, lost, len(both))


def words(pair: Pair, corrected: float) -> str:
    """The comparison as a reader may quote it: no ranking where the test shows none."""
    if corrected >= LEVEL:
        return f"not separable ({_figures(pair, corrected)})"
    return f"{'better' if pair.gained > pair.lost else 'worse'} ({_figures(pair, corrected)})"


def _figures(pair: Pair, corrected: float) -> str:
    p = "< 0.001" if corrected < 0.001 else f"= {corrected:.3f}"
    return f"+{pair.gained} -{pair.lost} of {pair.items}, p {p}"
