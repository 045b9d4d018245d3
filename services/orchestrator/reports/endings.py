"""How a job's samples ended, and which of them end differently in another job. Pure: rows in, counts out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from shared.rag.taxonomy import Ending
from shared.storage.samples import Traced

Counts = dict[str, int]
Sample = TypeVar("Sample")
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


def moved(left: Mapping[Sample, str], right: Mapping[Sample, str]) -> dict[str, Counts]:
    """Of the samples that ended in both jobs: ending in `left` -> ending in `right` -> how many.

    The diagonal is in it: a row's sum is how many of those samples ended that way in `left`.
    """
    pairs = Counter((left[sample], right[sample]) for sample in left.keys() & right.keys())
    rows = {was: Counter({now: n for (before, now), n in pairs.items() if before == was}) for was, _ in pairs}
    return {was: in_order(rows[was]) for was in _ORDER if was in rows}


def in_order(counts: Mapping[str, int]) -> Counts:
    """As `Ending` lists them, so that two tables are read line by line."""
    return {each: counts[each] for each in _ORDER if each in counts}
