"""Run the paired randomisation test (Fisher 1935) exactly."""

from collections import Counter

MAX_ENUMERATED = 16
"""The most differences for which all 2^16 signs are tried, in a few milliseconds."""


def compute_exact_p(sizes: Counter[int], total: int) -> float | None:
    """Compute the two-sided p of a sum of 0 over all signs; None for too many differences of several sizes.

    `sizes` counts the absolute differences without zeros, `total` is the sum of all differences. More than
    `MAX_ENUMERATED` are too many. Equal sizes give the sign test (McNemar's exact test), however many they are.
    """
    if not sizes:
        return 1.0
    if len(sizes) == 1:
        return _sign_test(*next(iter(sizes.items())), total)
    return _enumerate_signs(sizes, total) if sizes.total() <= MAX_ENUMERATED else None


def _sign_test(size: int, count: int, total: int) -> float:
    from scipy.stats import binomtest  # slow to import, and most processes never need it

    positive = (count + total // size) // 2
    return float(binomtest(positive, count).pvalue)


def _enumerate_signs(sizes: Counter[int], total: int) -> float:
    import numpy as np

    sums = np.zeros(1, dtype=np.int64)
    for size in sizes.elements():
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= abs(total)))
