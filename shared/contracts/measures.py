"""What jobs are compared by: a value in [0, 1] of each sample, by name."""

import re
from typing import NamedTuple

import msgspec

from shared.contracts.replies import Graded, Marked

ACCURACY, EXACT, SCORE = "accuracy", "exact", "score"
OFFERED = f"{ACCURACY}, {EXACT}, {SCORE}, answer@K with K from 1 to 1000"
PATTERN = rf"{ACCURACY}|{EXACT}|{SCORE}|answer@([1-9][0-9]{{0,2}}|1000)"
"""Of their names, a regular expression."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an outcome that measures read."""

    verdict: Graded | Marked | None = None
    answer_rank: int | msgspec.UnsetType | None = msgspec.UNSET


class Measure(NamedTuple):
    """One of them."""

    name: str
    k: int | None = None
    """Of `answer@K`: among how many candidates the answer is looked for."""

    @property
    def has_degrees(self) -> bool:
        """Whether a sample's value may lie between 0 and 1."""
        return self.name == SCORE

    def value(self, outcome: Measured) -> float | None:
        """Of one sample; None: it was not measured."""
        if self.k is not None:
            return found_within(outcome.answer_rank, self.k)
        verdict = outcome.verdict
        if verdict is None:
            return None
        by_name = {ACCURACY: verdict.correct, EXACT: verdict.strict, SCORE: verdict.score}
        value = by_name[self.name]
        return None if value is None else float(value)


def measure(name: str) -> Measure:
    """The measure called `name`.

    Raises:
        LookupError: there is none; the message lists those that exist.
    """
    match = re.fullmatch(PATTERN, name)
    if match is None:
        raise LookupError(f"there is no measure {name!r}; there are: {OFFERED}")
    return Measure(name, int(match[1]) if match[1] else None)


def answer_at(k: int) -> Measure:
    """Whether an answer occurs in the first `k` candidates."""
    return Measure(f"answer@{k}", k)


def found_within(rank: int | msgspec.UnsetType | None, k: int) -> float | None:
    """1 or 0 by the rank of the first candidate with an answer; None where it was not looked for."""
    if rank is msgspec.UNSET:
        return None
    return float(rank is not None and rank <= k)
