"""Answers that the two graders judge differently: the ones to read before believing either."""

from collections.abc import Iterable

import msgspec

from shared.storage.samples import Traced

MOST = 20
"""Of a report; `GET /v1/jobs/{job}/samples?differing=true` has them all."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, with both verdicts."""

    index: int
    repeat: int
    answer: str | None
    gold: str | None
    math_verify: bool
    strict: bool


class Disagreements:
    """Keeps the first of them."""

    def __init__(self) -> None:
        self.first: list[Disagreement] = []

    def add(self, samples: Iterable[Traced]) -> None:
        """Look through these samples, which come in dataset order."""
        for row, _ in samples:
            if len(self.first) == MOST:
                return
            if row.correct is not None and row.strict is not None and row.correct != row.strict:
                both = {"math_verify": row.correct, "strict": row.strict}
                self.first.append(
                    Disagreement(index=row.index, repeat=row.repeat, answer=row.answer, gold=row.gold, **both)
                )
