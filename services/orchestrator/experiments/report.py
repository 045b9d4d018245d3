"""Computes an experiment's report at each request: one row per cell, from the rows of all its jobs."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from anyio import to_thread

from services.orchestrator.experiments.comparisons import MOST_PAIRS, Comparisons, compare_systems, make_family
from services.orchestrator.reports.comparison import BY_VERDICT
from services.orchestrator.reports.facts import load_facts
from services.orchestrator.reports.measure_means import check_scores, compute_mean
from services.orchestrator.reports.tally import Accuracy, compute_accuracy
from shared.plurals import format_count
from shared.shapes import Measure
from shared.statistics.intervals import Graded
from shared.statistics.significance import Mean
from shared.storage import experiments, jobs
from shared.storage.database import Database
from shared.storage.jobs import Costs, load_costs


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a job; all cells that share the job show the same."""

    accuracy: Accuracy
    """Accuracy by the job's grader."""
    measured: Mean
    """Mean of the requested measure; it has no value if nothing was measured."""
    request_counts: jobs.RequestCounts
    failures: dict[str, int]
    """Number of failed samples by kind."""
    gate: jobs.Gate | None
    calls_made: dict[str, int]
    """Calls made, by role. Of jobs that ran together, the first that needed a call made it."""
    calls_reused: dict[str, int]
    model_loads: int
    """Number of distinct pairs (epoch, model) among the calls that it made."""
    seconds: float | None
    """Seconds from submission to end; null while it runs."""


class Row(experiments.Cell, frozen=True, kw_only=True):
    """One cell, and the results of its job."""

    result: Answered | None
    """Results; null if the cell has no job, or its job was purged."""


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment."""

    id: uuid.UUID
    name: str
    state: str
    measure: str
    """Measure that is compared: `accuracy`, `exact`, `score` or `answer@K`."""
    baseline: str | None
    request_counts: jobs.RequestCounts
    calls_made: dict[str, int]
    """Calls made by all jobs, by role."""
    model_loads: int
    rows: list[Row]
    """Every cell, in the order of the document."""
    comparisons: Comparisons | None
    """Comparisons of the systems; null if there is nothing to compare, or too much."""
    notes: list[str]


async def report(database: Database, reference: str, measure: Measure = BY_VERDICT) -> ExperimentReport:
    """Return the report of the experiment that `reference` names.

    Raises:
        NotFound: there is no such experiment.
        Conflict: the reference is ambiguous, or the jobs' scores, by which they are compared, are of different
            kinds.
    """
    async with database.snapshot() as connection:
        number = await experiments.resolve(connection, reference)
        members = await experiments.load_members(connection, number)
        found = await experiments.load_standing(connection, number, members)
        cost = await load_costs(connection, list(members))
        graded = await jobs.count_verdicts(connection, list(members))
        check_scores(measure, (await load_facts(connection, members)).values())
        readings = await jobs.load_values(connection, list(members), measure)
        measured = await jobs.count_shares(connection, readings)
    # In a thread: the first interval imports scipy, which takes a second.
    results = await to_thread.run_sync(_make_results, members, cost, graded, measured, readings)
    compared = await compare_systems(database, found, members, measure)
    return ExperimentReport(
        measure=measure.name,
        calls_made=_sum_counts(each.calls_made for each in results.values()),
        model_loads=len(set[tuple[int, int, int]]().union(*cost.loads.values())),
        rows=[_make_row(cell, results) for cell in found.grid],
        comparisons=compared,
        notes=notes(found, members),
        **{field: getattr(found, field) for field in _OF_EXPERIMENT},
    )


_OF_EXPERIMENT = ("id", "name", "state", "baseline", "request_counts")


def _make_results(
    members: Mapping[int, experiments.Member],
    cost: Costs,
    graded: Mapping[int, Graded],
    measured: Mapping[int, Graded],
    readings: jobs.SampleValues,
) -> dict[uuid.UUID, Answered]:
    """Return the results by the jobs' public ids."""
    return {
        job.id: Answered(
            accuracy=compute_accuracy(graded.get(row, {})),
            measured=compute_mean(readings.measure, measured.get(row, {}), readings.unit),
            request_counts=job.request_counts,
            failures=cost.failures.get(row, {}),
            gate=job.gate,
            calls_made=cost.made.get(row, {}),
            calls_reused=cost.reused.get(row, {}),
            model_loads=len(cost.loads.get(row, ())),
            seconds=job.seconds,
        )
        for row, job in members.items()
    }


def _make_row(cell: experiments.Cell, results: Mapping[uuid.UUID, Answered]) -> Row:
    result = None if cell.job is None else results[cell.job]
    return Row(result=result, **msgspec.structs.asdict(cell))


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def notes(found: experiments.Standing, members: Mapping[int, experiments.Member]) -> list[str]:
    """Return what a reader must know before quoting a figure."""
    pairs = len(make_family(found, members).pairs)
    answered = [cell.job for cell in found.grid if cell.job is not None]
    shared = len(answered) - len(set(answered))
    states, counts = Counter(cell.state for cell in found.grid), found.request_counts
    return [
        f"{format_count(count, one, several)} {rest}"
        for count, one, several, rest in (
            (shared, "cell shares", "cells share", "the job of another cell with the same request"),
            (states[experiments.REFUSED], "cell was", "cells were", "not run; `refused` says why"),
            (states[experiments.PURGED], "cell has", "cells have", "a job that was purged"),
            (counts.in_progress, "sample is", "samples are", "still in progress: not final"),
            (counts.failed, "sample failed and is", "samples failed and are", "not in the figures; see `failures`"),
            (pairs if pairs > MOST_PAIRS else 0, "pair is", "pairs are", "too many to compare: name a `baseline`"),
        )
        if count
    ]
