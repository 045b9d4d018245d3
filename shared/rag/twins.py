"""Which questions a corpus answers already: the rule of `shingles.asks_the_same`, for many questions at once.

Candidates are found by prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): two sets
that share enough share one of their few rarest elements. Nothing is missed, and few pairs are looked at.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from shared.contracts import canonical
from shared.rag.shingles import ALIKE, Shingles, alike, shingles
from shared.rag.tfidf import terms

Shingle = tuple[str, ...]


class Twin(NamedTuple):
    """A question that a document's problem is over again."""

    question: int
    """Its place among the questions."""
    exact: bool
    """The same text but for case and outer blanks; else most of its words in the same order."""


class Questions:
    """Questions that any number of problems are held against."""

    def __init__(self, questions: Sequence[str]) -> None:
        """Memory is for the questions' shingles: some 10 KB for a question of 50 words."""
        texts = [_normal(question) for question in questions]
        self._shingles = [shingles(terms(text)) for text in texts]
        self._common = Counter(shingle for found in self._shingles for shingle in found)
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._rare: defaultdict[Shingle, list[int]] = defaultdict(list)
        for place, (text, found) in enumerate(zip(texts, self._shingles, strict=True)):
            self._exact[text].append(place)
            for shingle in self._prefix(found):
                self._rare[shingle].append(place)

    def twins(self, problem: str) -> list[Twin]:
        """The questions that this problem is over again, in their order; none for a passage without a problem."""
        text = _normal(problem)
        if not text:
            return []
        same, found = set(self._exact.get(text, ())), shingles(terms(text))
        candidates = {place for shingle in self._prefix(found) for place in self._rare.get(shingle, ())}
        near = {place for place in candidates if alike(self._shingles[place], found)}
        return [Twin(place, place in same) for place in sorted(same | near)]

    def _prefix(self, found: Shingles) -> list[Shingle]:
        """The rarest: so many that of `ALIKE` of them all at least one must be among them."""
        # The product may come out a little above a whole number that it should be.
        needed = math.ceil(ALIKE * len(found) - 1e-9)
        rarest = sorted(found, key=lambda shingle: (self._common[shingle], shingle))
        return rarest[: len(found) - needed + 1]


def _normal(text: str) -> str:
    return canonical.normalise(text).lower()
