"""What a job's samples add up to. Pure: rows in, figures out."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from shared.contracts.samples import Outcome
from shared.statistics.bootstrap import bootstrap
from shared.statistics.intervals import Interval, wilson
from shared.statistics.repeats import Repeats, spread
from shared.statistics.shares import Graded, values
from shared.storage.samples import SampleRow, Traced

UNKNOWN = "unknown"
"""Level or subject of an item that names none."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Share of correct samples with Wilson's 95 % interval.

    The interval counts items, not samples: repeats of one item are not independent observations.
    """

    value: float | None
    """None: nothing was graded."""
    low: float
    high: float
    correct: int
    graded: int


def accuracy(items: Graded) -> Accuracy:
    """Of answers, counted by item."""
    correct = sum(right * count for (right, _), count in items.items())
    graded = sum(answers * count for (_, answers), count in items.items())
    expected = sum(value * count for value, count in values(items).items())
    interval = wilson(round(expected), sum(items.values()))
    value = correct / graded if graded else None
    return Accuracy(value=value, low=interval.low, high=interval.high, correct=correct, graded=graded)


class Grades:
    """Verdicts of one grader, counted by item; those of an item come one after another."""

    def __init__(self) -> None:
        self._before: Counter[tuple[int, int]] = Counter()
        self._item: int | None = None
        self._right = self._answers = 0

    def add(self, item: int, verdict: bool | None) -> None:  # noqa: FBT001 - a verdict is what is added
        """Count a verdict in; None is none."""
        if verdict is None:
            return
        if item != self._item:
            self._before.update(self._now())
            self._item, self._right, self._answers = item, 0, 0
        self._right += verdict
        self._answers += 1

    def _now(self) -> dict[tuple[int, int], int]:
        return {(self._right, self._answers): 1} if self._answers else {}

    def items(self) -> Graded:
        """How many items were answered right how often."""
        return self._before + Counter(self._now())

    def accuracy(self) -> Accuracy:
        """Of all of them."""
        return accuracy(self.items())


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the samples add up to."""

    accuracy: Accuracy
    """By the job's grader."""
    strict: Accuracy
    """By Hendrycks' rules; with a grader beyond mathematics exact matches."""
    disagreements: int
    """Samples that the two graders judge differently."""
    extraction: dict[str, int]
    """Completed samples by what became of their answer's box."""
    failures: dict[str, int]
    """Failed samples by kind."""
    grading_failures: dict[str, int]
    truncated: int
    """Answers that the model did not end itself."""
    truncated_by: dict[str, int]
    """The same by what ended them: `length` is the token limit."""
    unscored: int
    """Samples in which scoring was asked for and no candidate has a quality."""
    duplicates_dropped: int
    refused: int
    """Questions that were not answered on purpose: no document was relevant enough."""
    decisions: dict[str, dict[str, int]]
    """What methods did, by stage and action: an action counts as often as it was taken."""
    fallbacks: dict[str, dict[str, int]]
    """How often a part was done the plain way, by stage and the kind of failure that it was done for."""
    bootstrap: Interval | None
    """The mean over items with its 95 % percentile interval, drawn by item; None: nothing was graded."""
    repeats: Repeats
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]


class Tally:
    """Adds samples up, one at a time."""

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

    def add(self, samples: Iterable[Traced]) -> None:
        """Count these samples in."""
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
        """The sums."""
        return Figures(
            accuracy=self._grades.accuracy(),
            strict=self._strict.accuracy(),
            bootstrap=bootstrap([values(self._grades.items())]),
            repeats=spread([self._repeats[repeat] for repeat in sorted(self._repeats)]),
            disagreements=self._counts["disagreements"],
            extraction=_sorted(self._extraction),
            failures=_sorted(self._failures),
            grading_failures=_sorted(self._grading),
            truncated=self._counts["truncated"],
            truncated_by=_sorted(self._cuts),
            unscored=self._counts["unscored"],
            duplicates_dropped=self._counts["duplicates"],
            refused=self._counts["refused"],
            decisions={stage: _sorted(self._decisions[stage]) for stage in sorted(self._decisions)},
            fallbacks={stage: _sorted(self._fallbacks[stage]) for stage in sorted(self._fallbacks)},
            by_level=_by(self._levels),
            by_subject=_by(self._subjects),
        )


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _by(groups: dict[str, Grades]) -> dict[str, Accuracy]:
    """Nothing where no item says which group it belongs to."""
    return {name: groups[name].accuracy() for name in sorted(groups)} if groups.keys() - {UNKNOWN} else {}
