"""Grade answers by a function of the caller, in addition to the server's grader."""

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

import msgspec

from mathrag.client.answers import ResultRow
from mathrag.client.errors import Invalid
from mathrag.client.packages import require
from shared.statistics.intervals import Interval, Values, bootstrap, estimate_share

Grader = Callable[[ResultRow], bool | float | None]
"""Returns the grade of an answer: True, False, a number from 0 to 1, or None if it cannot decide."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The function's grade of one answer."""

    index: int
    repeat: int
    value: float
    answer: str | None
    gold: str | None
    correct: bool | None
    """Verdict of the job's grader."""

    @property
    def differs(self) -> bool:
        """Whether the job's grader disagrees; a value of 0.5 or more counts as right."""
        return self.correct is not None and self.correct != (self.value >= 0.5)


class LocalGrades(msgspec.Struct, frozen=True, kw_only=True):
    """The function's grades of a job's answers."""

    accuracy: Interval
    """Mean over items with its 95 % interval: Wilson's where all verdicts are right or wrong, else the bootstrap's."""
    items: int
    """Number of items with a verdict; the interval is over items, because repeats are not independent."""
    verdicts: tuple[Verdict, ...]
    undecided: int
    """Number of answers for which the function returned None."""

    @property
    def disagreements(self) -> tuple[Verdict, ...]:
        """Return the verdicts with which the job's grader disagrees."""
        return tuple(each for each in self.verdicts if each.differs)

    def __str__(self) -> str:
        found = self.accuracy
        if found.value is None:
            return "nothing was graded"
        between = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
        return f"{100 * found.value:.1f} % ({between}), {self.items} items, {len(self.disagreements)} disagreements"


def grade(rows: Iterable[ResultRow], grader: Grader) -> LocalGrades:
    """Grade the completed answers by `grader`.

    Raises:
        Invalid: it returns something other than a number from 0 to 1 or None.
        MissingPackage: scipy is not installed, which computes the intervals.
    """
    require("scipy", "grade")
    verdicts: list[Verdict] = []
    undecided = 0
    for row in rows:
        if row.state != "completed":
            continue
        value = _compute_value(row, grader)
        if value is None:
            undecided += 1
        else:
            verdicts.append(
                Verdict(
                    index=row.index, repeat=row.repeat, value=value, answer=row.answer, gold=row.gold,
                    correct=row.correct,
                )
            )  # fmt: skip
    return _summarise(verdicts, undecided)


def _compute_value(row: ResultRow, grader: Grader) -> float | None:
    try:
        grade = grader(row)
    except Exception as error:
        error.add_note(f"while grading sample {row.index}, repeat {row.repeat}")
        raise
    if grade is None:
        return None
    try:
        value = -1.0 if isinstance(grade, str) else float(grade)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value <= 1:
        hint = "return True, False, a number from 0 to 1, or None"
        raise Invalid("invalid", f"the grader returned {grade!r} for sample {row.index}", hint=hint)
    return value


def _summarise(verdicts: list[Verdict], undecided: int) -> LocalGrades:
    by_item: dict[int, list[float]] = {}
    for each in verdicts:
        by_item.setdefault(each.index, []).append(each.value)
    means = Counter(sum(map(Fraction, values), Fraction(0)) / len(values) for values in by_item.values())
    return LocalGrades(
        accuracy=_estimate_mean(means, is_binary=all(each.value in (0, 1) for each in verdicts)),
        items=len(by_item), verdicts=tuple(verdicts), undecided=undecided,
    )  # fmt: skip


def _estimate_mean(means: Values, *, is_binary: bool) -> Interval:
    return (None if is_binary else bootstrap([means])) or estimate_share(means)
