"""What a job's samples add up to. Pure: rows in, figures out."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from shared.contracts.samples import Outcome
from shared.statistics.intervals import wilson
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


class _Grades:
    """Verdicts of one grader, item by item."""

    def __init__(self) -> None:
        self._verdicts: defaultdict[int, list[bool]] = defaultdict(list)

    def add(self, item: int, verdict: bool | None) -> None:  # noqa: FBT001 - a verdict is what is added
        if verdict is not None:
            self._verdicts[item].append(verdict)

    def accuracy(self) -> Accuracy:
        correct = sum(map(sum, self._verdicts.values()))
        graded = sum(map(len, self._verdicts.values()))
        items = len(self._verdicts)
        mean = sum(sum(verdicts) / len(verdicts) for verdicts in self._verdicts.values())
        interval = wilson(round(mean), items)
        value = correct / graded if graded else None
        return Accuracy(value=value, low=interval.low, high=interval.high, correct=correct, graded=graded)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the samples add up to."""

    accuracy: Accuracy
    """By math-verify."""
    strict: Accuracy
    """By Hendrycks' rules."""
    disagreements: int
    """Samples that the two graders judge differently."""
    extraction: dict[str, int]
    """Completed samples by what became of their answer's box."""
    failures: dict[str, int]
    """Failed samples by kind."""
    grading_failures: dict[str, int]
    truncated: int
    """Answers that the token limit ended."""
    unscored: int
    """Samples in which scoring was asked for and no candidate has a quality."""
    duplicates_dropped: int
    refused: int
    """Questions that were not answered on purpose: no document was relevant enough."""
    decisions: dict[str, dict[str, int]]
    """What methods did, by stage and action: an action counts as often as it was taken."""
    fallbacks: dict[str, dict[str, int]]
    """How often a part was done the plain way, by stage and the kind of failure that it was done for."""
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]


class Tally:
    """Adds samples up, one at a time."""

    def __init__(self) -> None:
        self._grades, self._strict = _Grades(), _Grades()
        self._levels: defaultdict[str, _Grades] = defaultdict(_Grades)
        self._subjects: defaultdict[str, _Grades] = defaultdict(_Grades)
        self._extraction: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._grading: Counter[str] = Counter()
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
            disagreements=self._counts["disagreements"],
            extraction=_sorted(self._extraction),
            failures=_sorted(self._failures),
            grading_failures=_sorted(self._grading),
            truncated=self._counts["truncated"],
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


def _by(groups: dict[str, _Grades]) -> dict[str, Accuracy]:
    """Nothing where no item says which group it belongs to."""
    return {name: groups[name].accuracy() for name in sorted(groups)} if groups.keys() - {UNKNOWN} else {}
