"""How far two ratings of the same thing agree, beyond what chance would do."""

from collections.abc import Sequence

Table = Sequence[Sequence[int]]
"""Pairs of ratings: [first][second] -> how many."""


def weighted_kappa(table: Table) -> float | None:
    """Cohen's kappa with quadratic weights (Cohen 1968): 1 - observed / expected squared difference.

    1 is perfect agreement, 0 what ratings of the same frequencies would have by chance. None where chance alone agrees
    perfectly (all ratings are the same) or nothing was rated.
    """
    total = sum(map(sum, table))
    firsts, seconds = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    cells = [(i, j) for i in range(len(table)) for j in range(len(table))]
    observed = sum((i - j) ** 2 * table[i][j] for i, j in cells)
    expected = sum((i - j) ** 2 * firsts[i] * seconds[j] for i, j in cells)
    return 1 - total * observed / expected if expected else None
