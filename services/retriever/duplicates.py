"""Near-duplicates: a document that answers the very question would leak its answer (MATH's test has such twins)."""

from collections.abc import Iterable
from functools import lru_cache

from services.retriever import tokens
from shared.contracts import canonical

SHINGLE = 3
THRESHOLD = 0.8

Shingles = frozenset[tuple[str, ...]]


def is_near_duplicate(question: str, problem: str) -> bool:
    """Whether `problem` asks the same as `question`: equal text, or shingles with a Jaccard index of at least 0.8.

    Words are the tokens that BM25 counts, so signs and markup are ignored. An empty problem (a plain passage) is
    never one.
    """
    asked, answered = _normal(question), _normal(problem)
    if asked == answered or not answered:
        return bool(answered)
    left, right = shingles(asked), shingles(answered)
    # Sets of too different a size cannot share enough, and most pairs are settled by that.
    alike = min(len(left), len(right)) >= THRESHOLD * max(len(left), len(right))
    return alike and jaccard(left, right) >= THRESHOLD


def near_duplicates(question: str, problems: Iterable[tuple[str, str]]) -> list[str]:
    """Of (document, problem) pairs the documents that are near-duplicates of `question`, in order."""
    return [document for document, problem in problems if is_near_duplicate(question, problem)]


def jaccard(left: Shingles, right: Shingles) -> float:
    """|intersection| / |union|; 0 for two empty sets."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


@lru_cache(maxsize=8192)
def _normal(text: str) -> str:
    return canonical.normalise(text).lower()


@lru_cache(maxsize=8192)
def shingles(text: str) -> Shingles:
    """Every three neighbouring words; a shorter text is one shingle, a text without words has none."""
    words = tokens.tokenise(text)
    if len(words) <= SHINGLE:
        return frozenset({tuple(words)} if words else ())
    return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))
