"""The mean of what answers were graded by, where the grader has degrees: token F1, F1 of a set, or a rating."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from shared.rag.graders import grader
from shared.statistics import significance
from shared.statistics.significance import Mean
from shared.storage.samples import Traced


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over items; repeats of one item count as one."""

    name: str
    """What was averaged, such as "token F1"."""
    mean: Mean


class Scores:
    """Adds up the scores of samples."""

    def __init__(self) -> None:
        self._items: defaultdict[int, list[float]] = defaultdict(list)

    def add(self, samples: Iterable[Traced]) -> None:
        """Count these samples in; those without a score are left out."""
        for row, _ in samples:
            if row.score is not None:
                self._items[row.index].append(row.score)

    def figures(self, name: str) -> Score | None:
        """Of the grader called `name`; None where nothing has a score."""
        if not self._items:
            return None
        means = [sum(scores) / len(scores) for scores in self._items.values()]
        found = grader(name)
        return Score(name=found.score or "score", mean=significance.mean(means, found.most))
