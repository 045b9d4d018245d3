"""Computes the mean of a measure, and explains why a job has no value of it."""

from collections.abc import Iterable
from typing import Any

from services.orchestrator.reports.tally import compute_accuracy
from shared.errors import Conflict, Invalid
from shared.rag.grading import GRADERS, grader_of_results
from shared.shapes import EXACT, SCORE, Measure, find_measure
from shared.statistics import intervals, significance
from shared.statistics.intervals import Graded
from shared.statistics.significance import Mean
from shared.storage.database import try_decode_params

_ANSWER = (
    "its searches were not checked for gold answers: it searches nothing, its grader ({}) is not one of"
    f" {', '.join(name for name, each in GRADERS.items() if each.worded)}, its items have no gold answer, or it ran"
    " before answers were looked for"
)
WHY = {
    EXACT: "its grader ({}) does not report exact matches",
    SCORE: "its grader ({}) gives no scores, only verdicts; `f1` and `set` give scores",
}


def parse_measure(name: str) -> Measure:
    """Return the measure that a request names.

    Raises:
        Invalid: there is no measure of this name.
    """
    try:
        return find_measure(name)
    except LookupError as error:
        raise Invalid(f"`measure`: {error.args[0]}") from error


def compute_mean(measured: Measure, items: Graded, unit: int = 1) -> Mean:
    """Return the mean over items: of a score with Student's interval, of a yes-or-no measure with Wilson's."""
    if measured.has_degrees:
        values = intervals.count_values(items, unit)
        return significance.estimate_mean([float(value) for value, count in values.items() for _ in range(count)])
    found = compute_accuracy(items)
    known = found.value is not None
    return Mean(
        value=found.value, low=found.low if known else None, high=found.high if known else None, n=sum(items.values())
    )  # fmt: skip


def check_scores(measured: Measure, jobs: Iterable[Any]) -> None:
    """Check that the scores of these jobs are shares of the same kind, if scores are measured.

    Raises:
        Conflict: they are ratings, or mix token F1 with F1 of sets.
    """
    if measured.name != SCORE:
        return
    kinds = {found.score: job.name for job in jobs if (found := grader_of_results(_find_grader(job))).score}
    if any(each.most != 1 for each in GRADERS.values() if each.score in kinds):
        raise Conflict(
            "`score`: ratings from 1 to 5 cannot be compared as shares",
            hint="use `accuracy`, which counts ratings of at least `grading.rating`",
        )
    if len(kinds) > 1:
        kind_list = "; ".join(f"of job {name!r} it is {kind}" for kind, name in kinds.items())
        raise Conflict(f"`score` is of different kinds: {kind_list}", hint="give all jobs the same `grading.grader`")


def make_conflict(measured: Measure, job: Any) -> Conflict:
    """Return the error for a job without a value of a measure, with the reason and what to do."""
    why = WHY.get(measured.name, _ANSWER).format(_find_grader(job))
    return Conflict(
        f"job {job.name!r} was not measured by `{measured.name}`: {why}",
        hint="leave the job out, choose another `measure`, or submit it again with another `grading.grader`",
    )


def _find_grader(job: Any) -> str:
    params, _ = try_decode_params(job.params, "")
    return (params.grading.grader if params else "") or "math"
