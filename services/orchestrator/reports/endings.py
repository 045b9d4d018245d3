"""How a job's samples ended, and which of them end differently in another job. Pure: rows in, counts out."""

from collections import Counter
from collections.abc import Iterable, Mapping

from shared.rag.taxonomy import Ending
from shared.storage.samples import Traced

Counts = dict[str, int]
ByContent = dict[tuple[int, int], str]
"""Ending by what was asked (a hash of question and gold answer, of this process) and repeat."""
_ORDER = [each.value for each in Ending]


class Endings:
    """Counts samples by their ending; cancelled ones have none."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, samples: Iterable[Traced]) -> None:
        """Count these samples in."""
        self._counts.update(row.ending for row, _ in samples if row.ending is not None)

    def counts(self) -> Counts:
        """Those that occur, in the order of `Ending`."""
        return in_order(self._counts)


def by_content(samples: Iterable[Traced]) -> ByContent:
    """The endings of these samples, wherever they stand in their dataset."""
    return {(hash((row.question, row.gold)), row.repeat): row.ending for row, _ in samples if row.ending is not None}


def moved(jobs: Iterable[tuple[ByContent, ByContent]]) -> dict[str, Counts]:
    """Of the samples that ended in both jobs of a pair: ending on the left -> ending on the right -> how many.

    The diagonal is in it: a row's sum is how many of those samples ended that way on the left.
    """
    pairs = Counter((left[each], right[each]) for left, right in jobs for each in left.keys() & right.keys())
    rows = {was: Counter({now: n for (before, now), n in pairs.items() if before == was}) for was, _ in pairs}
    return {was: in_order(rows[was]) for was in _ORDER if was in rows}


def in_order(counts: Mapping[str, int]) -> Counts:
    """As `Ending` lists them, so that two tables are read line by line."""
    return {each: counts[each] for each in _ORDER if each in counts}
