"""Describes the result of a comparison: the systems, and the pairs of them that were tested."""

import uuid

import msgspec

from services.orchestrator.reports.tally import Accuracy
from shared.statistics.intervals import Interval, Repeats
from shared.statistics.significance import Mean, PairComparison


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all its datasets."""

    name: str
    jobs: tuple[uuid.UUID, ...]
    """Jobs, one for each dataset, in the order of `datasets`."""
    datasets: tuple[str, ...]
    pipeline: str
    items: int
    """Number of items that have a value of the measure, over all datasets."""
    accuracy: Accuracy
    measured: Mean
    """Mean of the measure: with Wilson's interval over items for a yes-or-no measure, with Student's for a score."""
    bootstrap: Interval | None
    """Mean of the measure over items, resampled within datasets; null if nothing was measured."""
    repeats: Repeats
    endings: dict[str, int]
    """Samples by how they ended (docs/explanation/statistics.md); empty unless requested, because it reads every
    reply.
    """


class Versus(PairComparison, frozen=True, kw_only=True):
    """Two systems on their common items: `difference` is left minus right."""

    left: str
    right: str
    left_only: int
    """Items that only the left system has a value for; they count in no figure of the pair. An item that a dataset
    lists twice is one item of a pair.
    """
    right_only: int
    moved: dict[str, dict[str, int]]
    """Common samples by their ending on the left, then on the right; empty unless requested."""
    words: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and pairs of them, which are corrected together as one family of tests (Holm)."""

    measure: str
    """Measure that was compared: `accuracy`, `exact`, `score` or `answer@K`."""
    baseline: str | None
    """System on the right side of every pair; null if every pair was compared."""
    finding: str
    """The result in one sentence, which ranks only systems that the tests tell apart."""
    jobs: list[Compared]
    pairs: list[Versus]
    notes: list[str]
