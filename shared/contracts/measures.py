"""The measures by which jobs are compared: each gives a sample a value in [0, 1]."""

import re
from typing import NamedTuple

import msgspec

from shared.contracts.replies import Graded, Marked

ACCURACY, EXACT, SCORE = "accuracy", "exact", "score"
OFFERED = f"{ACCURACY}, {EXACT}, {SCORE}, answer@K with K from 1 to 1000"
PATTERN = rf"{ACCURACY}|{EXACT}|{SCORE}|answer@([1-9][0-9]{{0,2}}|1000)"
"""Regular expression that matches the names of all measures."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an outcome that measures read."""

    verdict: Graded | Marked | None = None
    answer_rank: int | msgspec.UnsetType | None = msgspec.UNSET


class Measure(NamedTuple):
    """A measure by its name."""

    name: str
    k: int | None = None
    """Number of candidates among which `answer@K` looks for the answer."""

    @property
    def has_degrees(self) -> bool:
        """Tell whether a sample's value may lie between 0 and 1."""
        return self.name == SCORE

    def value(self, outcome: Measured) -> float | None:
        """Return the value of one sample; None if it was not measured."""
        if self.k is not None:
            return measure_within(outcome.answer_rank, self.k)
        verdict = outcome.verdict
        if verdict is None:
            return None
        by_name = {ACCURACY: verdict.correct, EXACT: verdict.strict, SCORE: verdict.score}
        value = by_name[self.name]
        return None if value is None else float(value)


def find_measure(name: str) -> Measure:
    """Return the measure called `name`.

    Raises:
        LookupError: there is no such measure; the message lists those that exist.
    """
    match = re.fullmatch(PATTERN, name)
    if match is None:
        raise LookupError(f"there is no measure {name!r}: name one of {OFFERED}")
    return Measure(name, int(match[1]) if match[1] else None)


def make_answer_measure(k: int) -> Measure:
    """Return the measure of whether an answer occurs in the first `k` candidates."""
    return Measure(f"answer@{k}", k)


def measure_within(rank: int | msgspec.UnsetType | None, k: int) -> float | None:
    """Return 1 or 0 from the rank of the first candidate with an answer; None if it was not measured."""
    if rank is msgspec.UNSET:
        return None
    return float(rank is not None and rank <= k)
