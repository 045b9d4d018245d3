"""Adam (Kingma and Ba 2015) on the rows of a table that a step touches; other rows and their moments do not change."""

import numpy as np
from numpy.typing import NDArray

DECAYS = (0.9, 0.999)
EPSILON = 1e-8
Floats = NDArray[np.float32]


class Adam:
    """Optimises a table [rows, d] in place."""

    def __init__(self, table: Floats, rate: float) -> None:
        self._table = table
        self._rate = rate
        self._means = np.zeros_like(table)
        self._squares = np.zeros_like(table)
        self._steps = 0

    def step(self, rows: NDArray[np.int64], gradients: Floats) -> None:
        """Update these distinct rows from their gradients [len(rows), d]."""
        self._steps += 1
        first, second = DECAYS
        means = first * self._means[rows] + (1 - first) * gradients
        squares = second * self._squares[rows] + (1 - second) * gradients**2
        self._means[rows], self._squares[rows] = means, squares
        size = np.sqrt(squares / (1 - second**self._steps)) + EPSILON
        self._table[rows] -= self._rate * (means / (1 - first**self._steps)) / size
