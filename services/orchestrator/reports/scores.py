"""Averages the scores of graders that give them: token F1, F1 of a set, or a rating."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from shared.rag.grading import grader_of_results
from shared.statistics import significance
from shared.statistics.significance import Mean
from shared.storage.samples import SampleWithOutcome


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items; repeats of one item count once."""

    name: str
    """Name of the score, such as "token F1"."""
    mean: Mean


class Scores:
    """Adds up the scores of samples."""

    def __init__(self) -> None:
        self._items: defaultdict[int, list[float]] = defaultdict(list)

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those without a score are left out."""
        for row, _ in samples:
            if row.score is not None:
                self._items[row.index].append(row.score)

    def figures(self, name: str) -> Score | None:
        """Return the mean score of the grader called `name`; None if no sample has a score."""
        if not self._items:
            return None
        means = [sum(scores) / len(scores) for scores in self._items.values()]
        found = grader_of_results(name)
        return Score(name=found.score or "score", mean=significance.estimate_mean(means, found.most))
