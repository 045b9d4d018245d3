"""The paired randomisation test (Fisher 1935): how often random signs of the differences would be as far from 0."""

from collections import Counter

MOST_ENUMERATED = 16
"""Differences whose 2^16 signs are all tried, in a few milliseconds."""


def exact(sizes: Counter[int], total: int) -> float | None:
    """Two-sided p of a sum of 0, from all signs; None where more than `MOST_ENUMERATED` differ, by several sizes.

    `sizes` counts the absolute differences that are not 0 (those of 0 have no sign), `total` is the sum of all
    differences. Equal sizes are the sign test, McNemar's exact test for single verdicts, however many they are.
    """
    if not sizes:
        return 1.0
    if len(sizes) == 1:
        return _sign_test(*next(iter(sizes.items())), total)
    return _enumerated(sizes, total) if sizes.total() <= MOST_ENUMERATED else None


def _sign_test(size: int, count: int, total: int) -> float:
    from scipy.stats import binomtest  # slow to import, and most processes never need it

    positive = (count + total // size) // 2
    return float(binomtest(positive, count).pvalue)


def _enumerated(sizes: Counter[int], total: int) -> float:
    import numpy as np

    sums = np.zeros(1, dtype=np.int64)
    for size in sizes.elements():
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= abs(total)))
