"""What one scale is worth on another: the means of what the other said, made to grow."""

from collections.abc import Sequence

DIGITS = 6
"""Kept of each value: the same labels give the same bytes."""


def monotone(means: Sequence[float | None], weights: Sequence[int]) -> tuple[float, ...]:
    """The values that never fall and lie closest to `means`: isotonic regression by least squares, `weights` each.

    scipy computes it by pooling adjacent violators (Barlow et al. 1972). None is a place where nothing was observed:
    there the value lies on the straight line between its neighbours, and beyond the last one it stays the same.

    Raises:
        ValueError: nothing was observed anywhere.
    """
    import numpy as np
    from scipy import optimize  # slow to import, and most processes never need it

    seen = [
        (place, mean, weight)
        for place, (mean, weight) in enumerate(zip(means, weights, strict=True))
        if mean is not None
    ]
    if not seen:
        raise ValueError("nothing was observed")
    places, known, counts = zip(*seen, strict=True)
    fitted = optimize.isotonic_regression(known, weights=counts).x
    return tuple(round(float(value), DIGITS) for value in np.interp(range(len(means)), places, fitted))
