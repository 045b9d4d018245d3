"""Computes how often an answer occurs in the first k documents that a sample found: R@k, which needs no relevance
labels.
"""

from collections.abc import Iterable

from msgspec.structs import asdict

from services.orchestrator.reports.tally import Accuracy, Grades, compute_accuracy
from shared.shapes import make_answer_measure, measure_within
from shared.statistics.intervals import Interval, bootstrap, count_values
from shared.storage.samples import SampleWithOutcome

KS = (1, 5, 10)


class AnswerAt(Accuracy, frozen=True, kw_only=True):
    """How often an answer is in the first k candidates: mean over items, with Wilson's interval; `correct` of the
    `graded` samples have one.
    """

    bootstrap: Interval | None
    """Mean over items with its 95 % percentile interval."""


class AnswersFound:
    """Counts samples by the rank of the first candidate with an answer. Samples come in dataset order."""

    def __init__(self) -> None:
        self._found = {k: Grades() for k in KS}
        self._candidates = 0

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those that searched nothing are left out."""
        for row, outcome in samples:
            if outcome is None:
                continue
            self._candidates = max(self._candidates, len(outcome.trace.candidates))
            for k, grades in self._found.items():
                within = measure_within(outcome.answer_rank, k)
                grades.add(row.index, None if within is None else bool(within))

    def figures(self) -> dict[str, AnswerAt]:
        """Return the share by measure, such as `answer@5`, for each k up to the most candidates of a sample; empty
        if nothing was measured.
        """
        found = {k: grades.items() for k, grades in self._found.items() if k <= max(1, self._candidates)}
        return {
            make_answer_measure(k).name: AnswerAt(
                bootstrap=bootstrap([count_values(items)]), **asdict(compute_accuracy(items))
            )
            for k, items in found.items()
            if items
        }
