"""Compare texts by the Jaccard index of their shingles."""

from collections.abc import Sequence

SHINGLE = 3
ALIKE = 0.8
"""Jaccard index from which two texts have almost the same words."""

Shingles = frozenset[tuple[str, ...]]


def make_shingles(found: Sequence[str]) -> Shingles:
    """Return every three consecutive terms; a shorter text is one shingle, one without terms has none."""
    if len(found) <= SHINGLE:
        return frozenset({tuple(found)} if found else ())
    return frozenset(zip(*(found[start:] for start in range(SHINGLE)), strict=False))


def are_alike(left: Shingles, right: Shingles) -> bool:
    """Return whether both share enough shingles; two texts without terms are not alike."""
    # Sets of too different a size cannot share enough, and most pairs are settled by that.
    if min(len(left), len(right)) < ALIKE * max(len(left), len(right), 1):
        return False
    shared = len(left & right)
    return shared >= ALIKE * (len(left) + len(right) - shared)
