"""Collects answers that the two graders judge differently, which a reader should check first."""

from collections.abc import Iterable

import msgspec

from shared.storage.samples import SampleWithOutcome

MOST = 20
"""Samples in a report; `GET /v1/jobs/{job}/samples?differing=true` lists all."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, with both verdicts."""

    index: int
    repeat: int
    answer: str | None
    gold: str | None
    math_verify: bool
    strict: bool


class Disagreements:
    """Keeps the first `MOST` disagreements."""

    def __init__(self) -> None:
        self.first: list[Disagreement] = []

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Search these samples, which come in dataset order."""
        for row, _ in samples:
            if len(self.first) == MOST:
                return
            if row.correct is not None and row.strict is not None and row.correct != row.strict:
                both = {"math_verify": row.correct, "strict": row.strict}
                self.first.append(
                    Disagreement(index=row.index, repeat=row.repeat, answer=row.answer, gold=row.gold, **both)
                )
