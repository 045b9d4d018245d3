"""What near-duplicates in the corpus are worth to a job. Pure: rows in, figures out.

Retrieval drops a document whose problem is the question over again before anybody sees it. That it was there is
counted here: such a question may be easier for other reasons, too, since whoever trained the model had the same texts.
"""

from collections.abc import Iterable

import msgspec

from services.orchestrator.reports.tally import Accuracy, Grades
from shared.storage.samples import Traced


class Contamination(msgspec.Struct, frozen=True, kw_only=True):
    """Items whose searches met a near-duplicate of the question; in a job without searches there are none."""

    items: int
    """All that ended."""
    affected: int
    documents: int
    """Near-duplicates dropped, at most of any one sample of an item, added up."""
    share: float
    """affected / items."""
    among: Accuracy
    """Of the affected items."""
    others: Accuracy
    """Of the rest: the accuracy that no duplicate can have had a part in."""


class Contaminated:
    """Adds samples up, which come in dataset order; all repeats of an item make the same searches."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._items = 0
        self._dropped: dict[int, int] = {}
        self._among, self._others = Grades(), Grades()

    def add(self, samples: Iterable[Traced]) -> None:
        """Count these samples in."""
        for row, _ in samples:
            if row.ending is None:
                continue
            self._items += row.index != self._last
            self._last = row.index
            if row.duplicates:
                self._dropped[row.index] = max(row.duplicates, self._dropped.get(row.index, 0))
            (self._among if row.duplicates else self._others).add(row.index, row.correct)

    def figures(self) -> Contamination | None:
        """The sums; None where no item is affected."""
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
