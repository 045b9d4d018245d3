"""Computes figures over a job's samples. Pure: rows in, figures out."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from shared.contracts.sample_rows import SampleRow
from shared.contracts.samples import Outcome
from shared.statistics.bootstrap import bootstrap
from shared.statistics.intervals import Interval, wilson
from shared.statistics.repeats import Repeats, measure_spread
from shared.statistics.shares import Graded, count_values
from shared.storage.samples import SampleWithOutcome

UNKNOWN = "unknown"
"""Level or subject of an item that has none."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Share of correct samples with Wilson's 95 % interval.

    The interval counts items, not samples: repeats of one item are not independent observations.
    """

    value: float | None
    """Share of correct samples; null if nothing was graded."""
    low: float
    high: float
    correct: int
    graded: int


def compute_accuracy(items: Graded) -> Accuracy:
    """Return the accuracy of answers counted by item."""
    correct = sum(right * count for (right, _), count in items.items())
    graded = sum(answers * count for (_, answers), count in items.items())
    expected = sum(value * count for value, count in count_values(items).items())
    interval = wilson(round(expected), sum(items.values()))
    value = correct / graded if graded else None
    return Accuracy(value=value, low=interval.low, high=interval.high, correct=correct, graded=graded)


class Grades:
    """Verdicts of one grader, counted by item; the verdicts of an item must come one after another."""

    def __init__(self) -> None:
        self._before: Counter[tuple[int, int]] = Counter()
        self._item: int | None = None
        self._right = self._answers = 0

    def add(self, item: int, verdict: bool | None) -> None:  # noqa: FBT001 - a verdict is what is added
        """Count a verdict; None is a missing one."""
        if verdict is None:
            return
        if item != self._item:
            self._before.update(self._count_last())
            self._item, self._right, self._answers = item, 0, 0
        self._right += verdict
        self._answers += 1

    def _count_last(self) -> dict[tuple[int, int], int]:
        return {(self._right, self._answers): 1} if self._answers else {}

    def items(self) -> Graded:
        """Return how many items were answered correctly how often."""
        return self._before + Counter(self._count_last())

    def accuracy(self) -> Accuracy:
        return compute_accuracy(self.items())


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over all samples."""

    accuracy: Accuracy
    """Accuracy by the job's grader."""
    strict: Accuracy
    """Accuracy by Hendrycks' rules; for graders other than the mathematical one the share of exact matches."""
    disagreements: int
    """Number of samples on which the two graders disagree."""
    extraction: dict[str, int]
    """Completed samples by how their boxed answer was found."""
    failures: dict[str, int]
    """Number of failed samples by kind."""
    grading_failures: dict[str, int]
    truncated: int
    """Answers that were cut off."""
    truncated_by: dict[str, int]
    """Answers that were cut off, by the reason; `length` is the token limit."""
    unscored: int
    """Samples for which scoring was requested and no candidate has a score."""
    duplicates_dropped: int
    refused: int
    """Questions that were deliberately not answered, because no document was relevant enough."""
    decisions: dict[str, dict[str, int]]
    """Decisions of methods by stage and action; an action counts each time it was taken."""
    fallbacks: dict[str, dict[str, int]]
    """Number of fallbacks, by stage and the kind of failure that caused them."""
    bootstrap: Interval | None
    """Mean over items with its 95 % percentile interval, resampled by item; null if nothing was graded."""
    repeats: Repeats
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]


class SampleTally:
    """Collects samples."""

    def __init__(self) -> None:
        self._grades, self._strict = Grades(), Grades()
        self._levels: defaultdict[str, Grades] = defaultdict(Grades)
        self._subjects: defaultdict[str, Grades] = defaultdict(Grades)
        self._repeats: dict[int, tuple[int, int]] = {}
        self._extraction: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._grading: Counter[str] = Counter()
        self._cuts: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._decisions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._fallbacks: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        for row, outcome in samples:
            self._grade(row)
            self._count(row)
            if outcome is not None:
                self._count_decisions(outcome)

    def _grade(self, row: SampleRow) -> None:
        self._grades.add(row.index, row.correct)
        right, answers = self._repeats.get(row.repeat, (0, 0))
        self._repeats[row.repeat] = right + bool(row.correct), answers + (row.correct is not None)
        self._strict.add(row.index, row.strict)
        self._levels[row.level or UNKNOWN].add(row.index, row.correct)
        self._subjects[row.subject or UNKNOWN].add(row.index, row.correct)
        if row.correct is not None and row.strict is not None:
            self._counts["disagreements"] += row.correct != row.strict

    def _count(self, row: SampleRow) -> None:
        if row.extraction:
            self._extraction[row.extraction] += 1
        if row.failure:
            self._failures[row.failure] += 1
        if row.grading_failure:
            self._grading[row.grading_failure] += 1
        self._counts["truncated"] += row.truncated
        if row.truncated_by:
            self._cuts[row.truncated_by] += 1
        self._counts["unscored"] += row.unscored
        self._counts["duplicates"] += row.duplicates

    def _count_decisions(self, outcome: Outcome) -> None:
        self._counts["refused"] += outcome.refusal is not None
        for decision in outcome.trace.decisions:
            self._decisions[decision.stage][decision.action] += 1
            if decision.fallback is not None:
                self._fallbacks[decision.stage][decision.fallback] += 1

    def figures(self) -> Figures:
        return Figures(
            accuracy=self._grades.accuracy(),
            strict=self._strict.accuracy(),
            bootstrap=bootstrap([count_values(self._grades.items())]),
            repeats=measure_spread([self._repeats[repeat] for repeat in sorted(self._repeats)]),
            disagreements=self._counts["disagreements"],
            extraction=_sort(self._extraction),
            failures=_sort(self._failures),
            grading_failures=_sort(self._grading),
            truncated=self._counts["truncated"],
            truncated_by=_sort(self._cuts),
            unscored=self._counts["unscored"],
            duplicates_dropped=self._counts["duplicates"],
            refused=self._counts["refused"],
            decisions={stage: _sort(self._decisions[stage]) for stage in sorted(self._decisions)},
            fallbacks={stage: _sort(self._fallbacks[stage]) for stage in sorted(self._fallbacks)},
            by_level=_compute_by_group(self._levels),
            by_subject=_compute_by_group(self._subjects),
        )


def _sort(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _compute_by_group(groups: dict[str, Grades]) -> dict[str, Accuracy]:
    """Return the accuracy of each group; empty if no item names its group."""
    return {name: groups[name].accuracy() for name in sorted(groups)} if groups.keys() - {UNKNOWN} else {}
