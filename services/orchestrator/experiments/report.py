"""An experiment's report: a row per cell, from the rows of all its jobs at once, each time it is asked for."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from anyio import to_thread

from services.orchestrator.experiments.comparing import MOST_PAIRS, Comparisons, comparisons, family
from services.orchestrator.reports.comparison import BY_VERDICT
from services.orchestrator.reports.facts import facts
from services.orchestrator.reports.measuring import check_scores, mean_of
from services.orchestrator.reports.tally import Accuracy, accuracy
from shared.contracts.measures import Measure
from shared.statistics.shares import Graded
from shared.statistics.significance import Mean
from shared.storage import experiments, jobs, verdicts
from shared.storage.costs import Costs, costs
from shared.storage.database import Database


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to; cells that share it show the same."""

    accuracy: Accuracy
    """By the job's grader."""
    measured: Mean
    """By the measure that was asked for; without a value where nothing was measured."""
    request_counts: jobs.RequestCounts
    failures: dict[str, int]
    """Failed samples by kind."""
    gate: jobs.Gate | None
    calls_made: dict[str, int]
    """By role; of jobs that ran together, whoever asked first made the call."""
    calls_reused: dict[str, int]
    model_loads: int
    """Distinct (epoch, model) among the calls that it made."""
    seconds: float | None
    """From submission to end; None while it runs."""


class Row(experiments.Cell, frozen=True, kw_only=True):
    """One cell, and what it came to."""

    result: Answered | None
    """None: no job was made for it, or it was purged."""


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment."""

    id: uuid.UUID
    name: str
    state: str
    measure: str
    """What is compared: `accuracy`, `exact`, `score` or `answer@K`."""
    baseline: str | None
    request_counts: jobs.RequestCounts
    calls_made: dict[str, int]
    """By role, by all its jobs."""
    model_loads: int
    rows: list[Row]
    """Every cell, in the order of the document."""
    comparisons: Comparisons | None
    """None: there is nothing to compare, or too much."""
    notes: list[str]


async def report(database: Database, reference: str, measure: Measure = BY_VERDICT) -> ExperimentReport:
    """The report of the one experiment that `reference` stands for.

    Raises:
        NotFound: no such experiment.
        Conflict: the reference stands for several, or the jobs' scores, by which they are to be compared, are not of
            one kind.
    """
    async with database.snapshot() as connection:
        number = await experiments.resolve(connection, reference)
        members = await experiments.members(connection, number)
        found = await experiments.standing(connection, number, members)
        cost = await costs(connection, list(members))
        graded = await verdicts.graded(connection, list(members))
        check_scores(measure, (await facts(connection, members)).values())
        readings = await verdicts.readings(connection, list(members), measure)
        measured = await verdicts.shares(connection, readings)
    # In a thread: the intervals import scipy once, which takes a second.
    results = await to_thread.run_sync(_results, members, cost, graded, measured, readings)
    compared = await comparisons(database, found, members, measure)
    return ExperimentReport(
        measure=measure.name,
        calls_made=_summed(each.calls_made for each in results.values()),
        model_loads=len(set[tuple[int, int]]().union(*cost.loads.values())),
        rows=[_row(cell, results) for cell in found.grid],
        comparisons=compared,
        notes=notes(found, members),
        **{field: getattr(found, field) for field in _OF_EXPERIMENT},
    )


_OF_EXPERIMENT = ("id", "name", "state", "baseline", "request_counts")


def _results(
    members: Mapping[int, experiments.Member],
    cost: Costs,
    graded: Mapping[int, Graded],
    measured: Mapping[int, Graded],
    readings: verdicts.Readings,
) -> dict[uuid.UUID, Answered]:
    """By the jobs' public ids."""
    return {
        job.id: Answered(
            accuracy=accuracy(graded.get(row, {})),
            measured=mean_of(readings.measure, measured.get(row, {}), readings.unit),
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


def _row(cell: experiments.Cell, results: Mapping[uuid.UUID, Answered]) -> Row:
    result = None if cell.job is None else results[cell.job]
    return Row(result=result, **msgspec.structs.asdict(cell))


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def notes(found: experiments.Standing, members: Mapping[int, experiments.Member]) -> list[str]:
    """What a reader must know before quoting a figure."""
    pairs = len(family(found, members).pairs)
    answered = [cell.job for cell in found.grid if cell.job is not None]
    states, counts = Counter(cell.state for cell in found.grid), found.request_counts
    return [
        words.format(count)
        for count, words in (
            (len(answered) - len(set(answered)), "{} cells share the job of another cell: they ask the same"),
            (states[experiments.REFUSED], "{} cells were not run: `refused` says why"),
            (states[experiments.PURGED], "{} cells have no job any more: it was purged"),
            (counts.in_progress, "not final: {} samples are still in progress"),
            (counts.failed, "{} samples failed: see `failures`; they are no scores"),
            (pairs if pairs > MOST_PAIRS else 0, "{} pairs are too many to compare: name a `baseline`"),
        )
        if count
    ]
