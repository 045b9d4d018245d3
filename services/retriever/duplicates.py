"""Near-duplicates: a document that answers the very question would leak its answer (MATH's test has such twins)."""

from collections.abc import Iterable
from functools import lru_cache

from shared.contracts import canonical

SHINGLE = 3
THRESHOLD = 0.8


def is_near_duplicate(question: str, problem: str) -> bool:
    """Whether `problem` asks the same as `question`: equal words, or word 3-shingles with a Jaccard index >= 0.8.

    An empty problem (a plain passage) is never one.
    """
    asked, answered = _shingles(question), _shingles(problem)
    return bool(answered) and jaccard(asked, answered) >= THRESHOLD


def jaccard(left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]) -> float:
    """|intersection| / |union|; 0 for two empty sets."""
    union = len(left | right)
    return len(left & right) / union if union else 0.0


def near_duplicates(question: str, problems: Iterable[tuple[str, str]]) -> list[str]:
    """Of (document, problem) pairs the documents that are near-duplicates of `question`, in order."""
    return [document for document, problem in problems if is_near_duplicate(question, problem)]


@lru_cache(maxsize=8192)
def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Every three neighbouring words, lower-cased; a shorter text is one shingle, an empty one has none."""
    words = canonical.normalise(text).lower().split()
    if len(words) <= SHINGLE:
        return frozenset({tuple(words)} if words else ())
    return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))
