"""Counts how a job's samples ended, and which of them ended differently in another job. Pure: rows in, counts out."""

from collections import Counter
from collections.abc import Iterable, Mapping

from shared.rag.provenance import Ending
from shared.storage.samples import SampleWithOutcome

Counts = dict[str, int]
ByContent = dict[tuple[int, int], str]
"""Ending by content (a hash of question and gold answer, valid in this process) and repeat."""
_ORDER = [each.value for each in Ending]


class Endings:
    """Counts samples by their ending; cancelled ones have none."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        self._counts.update(row.ending for row, _ in samples if row.ending is not None)

    def counts(self) -> Counts:
        """Return the endings that occur, in the order of `Ending`."""
        return sort_counts(self._counts)


def index_by_content(samples: Iterable[SampleWithOutcome]) -> ByContent:
    """Return the endings of these samples by content, independent of their position in the dataset."""
    return {(hash((row.question, row.gold)), row.repeat): row.ending for row, _ in samples if row.ending is not None}


def count_moves(jobs: Iterable[tuple[ByContent, ByContent]]) -> dict[str, Counts]:
    """Count the samples that ended in both jobs of a pair, by the ending on the left and then on the right.

    The diagonal is included: the sum of a row is the number of those samples that ended that way on the left.
    """
    pairs = Counter((left[each], right[each]) for left, right in jobs for each in left.keys() & right.keys())
    rows = {was: Counter({now: n for (before, now), n in pairs.items() if before == was}) for was, _ in pairs}
    return {was: sort_counts(rows[was]) for was in _ORDER if was in rows}


def sort_counts(counts: Mapping[str, int]) -> Counts:
    """Sort the counts in the order of `Ending`, so that two tables have the same rows."""
    return {each: counts[each] for each in _ORDER if each in counts}
