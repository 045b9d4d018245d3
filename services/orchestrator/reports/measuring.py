"""The mean of a measure, and jobs that lack it."""

from collections.abc import Iterable
from typing import Any

from services.orchestrator.reports.tally import accuracy
from shared.contracts.measures import EXACT, SCORE, Measure, measure
from shared.errors import Conflict, Invalid
from shared.rag.graders import GRADERS, grader
from shared.statistics import shares, significance
from shared.statistics.shares import Graded
from shared.statistics.significance import Mean
from shared.storage.stored import decoded_params

_ANSWER = (
    "no search of its own was looked through for gold answers: it searches nothing, its grader ({}) is not one of"
    f" {', '.join(name for name, each in GRADERS.items() if each.worded)}, its items have no gold answer, or it ran"
    " before answers were looked for"
)
WHY = {
    EXACT: "its grader ({}) says nothing about exact matches",
    SCORE: "its grader ({}) is right or wrong without degrees; `f1` and `set` have scores",
}


def chosen(name: str) -> Measure:
    """The measure that a request names.

    Raises:
        Invalid: there is none of this name.
    """
    try:
        return measure(name)
    except LookupError as error:
        raise Invalid(f"`measure`: {error.args[0]}") from error


def mean_of(measured: Measure, items: Graded, unit: int = 1) -> Mean:
    """The mean over items: of a score with Student's interval, of what is yes or no as an accuracy, with Wilson's."""
    if measured.has_degrees:
        values = shares.values(items, unit)
        return significance.mean([float(value) for value, count in values.items() for _ in range(count)])
    found = accuracy(items)
    known = found.value is not None
    return Mean(
        value=found.value, low=found.low if known else None, high=found.high if known else None, n=sum(items.values())
    )  # fmt: skip


def check_scores(measured: Measure, jobs: Iterable[Any]) -> None:
    """Return if these jobs' scores, where they are what is measured, are shares of one kind.

    Raises:
        Conflict: they are ratings, or token F1 of one job and F1 of sets of another.
    """
    if measured.name != SCORE:
        return
    kinds = {found.score: job.name for job in jobs if (found := grader(_grader(job))).score}
    if any(each.most != 1 for each in GRADERS.values() if each.score in kinds):
        raise Conflict(
            "`score`: ratings from 1 to 5 are no shares", hint="compare by `accuracy`: grading.rating or better"
        )
    if len(kinds) > 1:
        said = "; ".join(f"of job {name!r} it is {kind}" for kind, name in kinds.items())
        raise Conflict(f"`score` is not the same in all jobs: {said}", hint="give all jobs one `grading.grader`")


def not_measured(measured: Measure, job: Any) -> Conflict:
    """That a job has no value by a measure: why, and what to do."""
    why = WHY.get(measured.name, _ANSWER).format(_grader(job))
    return Conflict(
        f"job {job.name!r} was not measured by `{measured.name}`: {why}",
        hint="leave the job out, choose another `measure`, or submit it again with another `grading.grader`",
    )


def _grader(job: Any) -> str:
    params, _ = decoded_params(job.params, "")
    return (params.grading.grader if params else "") or "math"
