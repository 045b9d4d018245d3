"""What a comparison says: the systems, and the pairs of them that were tested."""

import uuid

import msgspec

from services.orchestrator.reports.tally import Accuracy
from shared.statistics.intervals import Interval
from shared.statistics.pairs import Pair
from shared.statistics.repeats import Repeats
from shared.statistics.significance import Mean


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all its datasets."""

    name: str
    jobs: tuple[uuid.UUID, ...]
    """One for each dataset, in the order of `datasets`."""
    datasets: tuple[str, ...]
    pipeline: str
    items: int
    """Those with a value by the measure."""
    accuracy: Accuracy
    measured: Mean
    """By the measure: Wilson's interval over items of what is yes or no, Student's of a score."""
    bootstrap: Interval | None
    """The mean of the measure over items, drawn within datasets; None: nothing was measured."""
    repeats: Repeats
    endings: dict[str, int]
    """Samples by what became of them (docs/statistics.md); empty unless asked for, since every reply is read for it."""


class Versus(Pair, frozen=True, kw_only=True):
    """Two systems on their common items: `difference` is left minus right."""

    left: str
    right: str
    left_only: int
    """Items that only the left one has a value for: they are in no figure of the pair."""
    right_only: int
    moved: dict[str, dict[str, int]]
    """Common samples by their ending on the left, then on the right; empty unless asked for."""
    words: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and pairs of them as one family of tests (Holm)."""

    measure: str
    """What was compared: `accuracy`, `exact`, `score` or `answer@K`."""
    baseline: str | None
    """The right side of every pair; None: each was compared with each."""
    finding: str
    """In one sentence, which ranks only what the tests tell apart."""
    jobs: list[Compared]
    pairs: list[Versus]
    notes: list[str]
