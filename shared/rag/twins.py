"""Find which questions a corpus already contains, by `duplicates.is_near_duplicate`, for many questions at once.

Candidates are found by prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): two sets
that share enough share one of their few rarest elements. Nothing is missed, and few pairs are looked at.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from shared.rag.duplicates import are_near_duplicates, make_comparable
from shared.rag.shingles import ALIKE, Shingles

Shingle = tuple[str, ...]


class QuestionDuplicate(NamedTuple):
    """A question that a document's problem repeats."""

    question: int
    """The index of the question among the questions."""
    exact: bool
    """The same text but for spelling, blanks and formatting; else the same mathematics and most of its words."""


class QuestionIndex:
    """Questions that any number of problems are compared with."""

    def __init__(self, questions: Sequence[str]) -> None:
        """Memory is for the questions' shingles: some 10 KB for a question of 50 words."""
        self._asked = [make_comparable(question) for question in questions]
        self._common = Counter(shingle for asked in self._asked for shingle in asked.shingles)
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._rare: defaultdict[Shingle, list[int]] = defaultdict(list)
        for place, asked in enumerate(self._asked):
            self._exact[asked.form].append(place)
            for shingle in self._prefix(asked.shingles):
                self._rare[shingle].append(place)

    def twins(self, problem: str) -> list[QuestionDuplicate]:
        """Return the questions that this problem repeats, in order; none for a passage without a problem."""
        found = make_comparable(problem)
        candidates = {place for shingle in self._prefix(found.shingles) for place in self._rare.get(shingle, ())}
        candidates.update(self._exact.get(found.form, ()))
        asked = ((place, self._asked[place]) for place in sorted(candidates))
        return [
            QuestionDuplicate(place, each.form == found.form)
            for place, each in asked
            if are_near_duplicates(each, found)
        ]

    def _prefix(self, found: Shingles) -> list[Shingle]:
        """Return the rarest shingles: enough that any near-duplicate shares at least one of them."""
        # The product may come out a little above a whole number that it should be.
        needed = math.ceil(ALIKE * len(found) - 1e-9)
        rarest = sorted(found, key=lambda shingle: (self._common[shingle], shingle))
        return rarest[: len(found) - needed + 1]
