"""Convert one scale to another by means that never fall."""

from collections.abc import Sequence

DIGITS = 6
"""Decimals of each value, so that the same labels give the same bytes."""


def fit_monotone(means: Sequence[float | None], weights: Sequence[int]) -> tuple[float, ...]:
    """Fit the values closest to `means` that never fall: isotonic regression by least squares with `weights`.

    scipy pools adjacent violators (Barlow et al. 1972). None in `means` stands for no observation: its value is
    interpolated between its neighbours, and constant beyond the last one.

    Raises:
        ValueError: there is no observation at all.
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
