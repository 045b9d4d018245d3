"""Measures how near-duplicates in the corpus relate to a job's accuracy. Pure: rows in, figures out.

Retrieval drops documents whose problem repeats the question. This module counts the questions that had such a
document. They may be easier for other reasons as well, because the model may have been trained on the same texts.
"""

from collections.abc import Iterable

import msgspec

from services.orchestrator.reports.tally import Accuracy, Grades
from shared.storage.samples import SampleWithOutcome


class Contamination(msgspec.Struct, frozen=True, kw_only=True):
    """Items whose searches met a near-duplicate of the question. A job without searches has none."""

    items: int
    """All items that ended."""
    affected: int
    documents: int
    """Near-duplicates that were dropped: for each item the most of any one sample, summed over items."""
    share: float
    """affected / items."""
    among: Accuracy
    """Accuracy on the affected items."""
    others: Accuracy
    """Accuracy on the other items, which no duplicate can have influenced."""


class Contaminated:
    """Collects samples, which come in dataset order; all repeats of an item make the same searches."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._items = 0
        self._dropped: dict[int, int] = {}
        self._among, self._others = Grades(), Grades()

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        for row, _ in samples:
            if row.ending is None:
                continue
            self._items += row.index != self._last
            self._last = row.index
            if row.duplicates:
                self._dropped[row.index] = max(row.duplicates, self._dropped.get(row.index, 0))
            (self._among if row.duplicates else self._others).add(row.index, row.correct)

    def figures(self) -> Contamination | None:
        """Return the sums; None if no item is affected."""
        if not self._dropped:
            return None
        return Contamination(
            items=self._items,
            affected=len(self._dropped),
            documents=sum(self._dropped.values()),
            share=len(self._dropped) / self._items,
            among=self._among.accuracy(),
            others=self._others.accuracy(),
        )
