"""Report an experiment: compare its variants, over all data and along its axes."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import msgspec
from anyio import to_thread

from mathrag.errors import Invalid
from mathrag.intervals import Graded
from mathrag.messages import format_count
from services.orchestrator.reports.comparison import (
    BY_VERDICT,
    Comparison,
    System,
    check_scores,
    compare,
    compute_mean,
    get_difference,
    list_measures,
)
from services.orchestrator.reports.report import MODEL_ROLES
from services.orchestrator.reports.tally import Accuracy, compute_accuracy, load_facts
from services.orchestrator.reports.warnings import list_demonstration_warnings
from shared.pipelines import registry
from shared.shapes import Measure
from shared.statistics.significance import Mean, describe_pair
from shared.storage import experiments, jobs
from shared.storage.configurations import merge
from shared.storage.database import Database
from shared.storage.experiments import Cell, Member, Standing
from shared.storage.jobs import Costs, load_costs

MOST_PAIRS = 500
"""Number of pairs above which no comparison is made: it would be unreadable, and its bootstraps take minutes."""


class Comparisons(msgspec.Struct, frozen=True, kw_only=True):
    """Comparisons of an experiment. P-values are corrected within each comparison."""

    pooled: Comparison
    """Comparison over all datasets, stratified by dataset."""
    datasets: dict[str, Comparison]
    """Comparison on each dataset alone; empty if there is only one."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and the pairs of their names that are compared."""

    systems: list[System]
    pairs: list[tuple[str, str]]

    def on(self, dataset: str) -> "Family":
        """Return the family restricted to one dataset."""
        systems = [System(each.name, {dataset: each.jobs[dataset]}) for each in self.systems if dataset in each.jobs]
        names = {each.name for each in systems}
        return Family(systems=systems, pairs=[pair for pair in self.pairs if names.issuperset(pair)])


async def compare_systems(
    database: Database, found: Standing, members: Mapping[int, Member], measure: Measure
) -> Comparisons | None:
    """Compare the systems of an experiment on each dataset, and pooled over all of them; None if there is nothing to
    compare, or more than `MOST_PAIRS` pairs.
    """
    whole = make_family(found, members)
    if not 0 < len(whole.pairs) <= MOST_PAIRS:
        return None
    names = list(dict.fromkeys(dataset for system in whole.systems for dataset in system.jobs))
    alone = names if len(names) > 1 else []
    return Comparisons(
        pooled=await _compare(database, whole, found.baseline, measure),
        datasets={name: await _compare(database, whole.on(name), found.baseline, measure) for name in alone},
    )


async def _compare(database: Database, of: Family, baseline: str | None, measure: Measure) -> Comparison:
    return await compare(database, of.systems, baseline, measure=measure, against=of.pairs)


def make_family(found: Standing, members: Mapping[int, Member]) -> Family:
    """Return the systems of an experiment whose jobs are `members`, by row id, and the pairs to compare.

    A system is a variant at one point of the grid and one seed. It is compared with the baseline at the same point and
    seed; without a baseline every pair is compared. Systems that are answered by the same jobs count as one.
    """
    rows = {member.id: row for row, member in members.items()}
    jobs: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    # Datasets that are searched in several corpora are named with the corpus.
    often = Counter(dataset for dataset, _ in {(cell.dataset, cell.corpus) for cell in found.grid})
    seeds = {cell.seed for cell in found.grid}
    for cell in found.grid:
        if cell.job is not None:
            values = {**cell.point, **({"seed": cell.seed} if len(seeds) > 1 else {})}
            where = " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in values.items())
            label = cell.dataset if often[cell.dataset] == 1 else f"{cell.dataset} in {cell.corpus}"
            jobs[cell.variant, where][label] = rows[cell.job]
    first: dict[frozenset[tuple[str, int]], str] = {}
    names = {key: first.setdefault(frozenset(of.items()), " ".join(filter(None, key))) for key, of in jobs.items()}
    systems = {names[key]: System(names[key], of) for key, of in jobs.items()}
    if found.baseline is None:
        return Family(systems=list(systems.values()), pairs=list(combinations(systems, 2)))
    against = [
        (names[variant, where], names[found.baseline, where])
        for variant, where in jobs
        if variant != found.baseline and (found.baseline, where) in jobs
    ]
    different = dict.fromkeys(pair for pair in against if pair[0] != pair[1])
    return Family(systems=list(systems.values()), pairs=list(different))


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a job. Cells that share a job have the same results."""

    accuracy: Accuracy
    """Accuracy by the job's grader."""
    measured: Mean
    """Mean of the requested measure; it has no value if nothing was measured."""
    request_counts: jobs.RequestCounts
    """Samples of the job by state."""
    failures: dict[str, int]
    """Number of failed samples by kind."""
    gate: jobs.Gate | None
    """The gate's decision; null if the job has no gate or the gate has not decided."""
    calls_made: dict[str, int]
    """Calls made by the job, by role. Jobs that ran together share calls, and the first job that needed a call made it.
    """
    calls_reused: dict[str, int]
    """Calls by role whose replies another job had already computed."""
    model_loads: int
    """Number of loads of the models that answered calls made by the job, including those in which a shared server
    loaded a model again."""
    seconds: float | None
    """Seconds from submission to end; null while the job runs."""


class Row(Cell, frozen=True, kw_only=True):
    """One cell, and the results of its job."""

    result: Answered | None
    """Results; null if the cell has no job, or its job was purged."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The variant to use after an experiment with a baseline: the best of those that are separably better than the
    baseline, or else the baseline."""

    variant: str
    """Name of the variant."""
    pipeline: str
    """Pipeline of the variant."""
    params: dict[str, Any]
    """Parameters of the variant, including those of the experiment."""
    separable: bool
    """Whether the variant is separably better than the baseline; false for the baseline itself."""
    words: str
    """The recommendation in one sentence."""


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment."""

    id: uuid.UUID
    """Id of the experiment."""
    name: str
    """Name of the experiment."""
    state: str
    """State of the experiment."""
    measure: str
    """Measure by which the cells are compared: `accuracy`, `exact`, `score`, `answer@K`, or a score of a metric."""
    baseline: str | None
    """Variant with which the others are compared; null if all pairs are compared."""
    request_counts: jobs.RequestCounts
    """Samples of all jobs by state."""
    calls_made: dict[str, int]
    """Calls made by all jobs, by role."""
    model_loads: int
    """Number of model loads of all jobs."""
    rows: list[Row]
    """Every cell, in the order of the request."""
    comparisons: Comparisons | None
    """Comparisons of the systems; null if there are fewer than two systems, or too many."""
    recommendation: Recommendation | None
    """The variant to use; null until all jobs are completed, without a baseline, with several grid points or seeds, and
    if nothing was measured."""
    measures: list[str]
    """Measures that the cells can be compared by."""
    notes: list[str]
    """Remarks on the figures, such as missing cells."""


async def report(database: Database, reference: str, measure: Measure = BY_VERDICT) -> ExperimentReport:
    """Return the report of the experiment that `reference` names.

    Raises:
        NotFound: the experiment does not exist.
        Conflict: the reference is ambiguous, or the jobs' scores, by which they are compared, are of different
            kinds.
    """
    async with database.snapshot() as connection:
        number = await experiments.resolve(connection, reference)
        members = await experiments.load_members(connection, number)
        found = await experiments.load_standing(connection, number, members)
        cost = await load_costs(connection, list(members))
        graded = await jobs.count_verdicts(connection, list(members))
        facts = (await load_facts(connection, members)).values()
        check_scores(measure, facts)
        readings = await jobs.load_values(connection, list(members), measure)
        measured = await jobs.count_shares(connection, readings)
        warnings = await list_demonstration_warnings(connection, list(members))
        asked = await experiments.load_document(connection, number)
    # In a thread: the first interval imports scipy, which takes a second.
    results = await to_thread.run_sync(_make_results, members, cost, graded, measured, readings)
    compared = await compare_systems(database, found, members, measure)
    calls = Counter[str]()
    for each in results.values():
        calls.update(each.calls_made)
    rows = [
        Row(result=None if cell.job is None else results[cell.job], **msgspec.structs.asdict(cell))
        for cell in found.grid
    ]
    return ExperimentReport(
        measure=measure.name,
        calls_made=dict(sorted(calls.items())),
        model_loads=len(set[tuple[int, int, int]]().union(*cost.loads.values())),
        rows=rows,
        comparisons=compared,
        recommendation=recommend(compared.pooled, rows, asked) if compared and found.state == "completed" else None,
        measures=list_measures(facts),
        notes=[*warnings, *notes(found, members)],
        **{field: getattr(found, field) for field in ("id", "name", "state", "baseline", "request_counts")},
    )


def recommend(compared: Comparison, rows: Sequence[Row], asked: Mapping[str, Any]) -> Recommendation | None:
    """Recommend a variant by comparisons with the baseline.

    None without a baseline, with several points or seeds, and if nothing is measured.

    Args:
        rows: all cells.
        asked: the submitted experiment.
    """
    baseline, variants = asked["baseline"], {each["name"]: each for each in asked["variants"]}
    n = max((each.items for each in compared.pairs), default=0)
    if baseline is None or n == 0 or {each.name for each in compared.jobs} - variants.keys():
        return None
    better = [each for each in compared.pairs if each.separable and get_difference(each) > 0]
    calls = {name: _count_calls([row for row in rows if row.variant == name]) for name in variants}
    if better:
        best = max(better, key=lambda each: (get_difference(each), -sum(calls[each.left].values())))
        # One of several was chosen, so its interval is the one that is corrected for their number.
        said = describe_pair(msgspec.structs.replace(best, difference=best.corrected or best.difference))
        name, words = best.left, f"use {best.left}, which is {said.replace(':', f' than {baseline}:', 1)}"
    else:
        verdict = "beats" if any(each.separable for each in compared.pairs) else "is separable from"
        name, words = baseline, f"no variant {verdict} {baseline} on {n} questions: use {baseline}"
        leader = max(compared.pairs, key=get_difference)
        if leader.needed and get_difference(leader) > 0:
            words += f"; {leader.left} leads by {100 * get_difference(leader):.1f} points, for which a comparison of"
            words += f" these two alone needs about {leader.needed:,} questions"
    if failed := sum(row.result.request_counts.failed for row in rows if row.variant == name and row.result):
        words += f". {format_count(failed, 'sample')} of {name} failed and count for nothing"
    costs = [f"{each} {_format_calls(calls[each])}" for each in dict.fromkeys((name, baseline))]
    chosen = variants[name]
    params = merge(asked["params"], chosen["params"])
    if chosen["pipeline"] in registry.names():
        params = registry.get(chosen["pipeline"]).select_read(params)
    return Recommendation(
        variant=name,
        pipeline=chosen["pipeline"],
        params=params,
        separable=bool(better),
        words=f"{words}. Model calls for each of these questions: {', '.join(costs)}",
    )


def _count_calls(rows: Sequence[Row]) -> dict[str, float]:
    """Count the model calls for each sample by role, whichever job made them; those of a calibration are shared out."""
    results = [row.result for row in rows if row.result]
    samples = sum(each.request_counts.total for each in results)
    calls = sum((Counter(each.calls_made) + Counter(each.calls_reused) for each in results), Counter[str]())
    return {role: calls[role] / samples for role in sorted(calls) if role in MODEL_ROLES and samples}


def _format_calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{count:.3g} {role}" for role, count in calls.items()) or "none"


def _make_results(
    members: Mapping[int, Member],
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


def notes(found: Standing, members: Mapping[int, Member]) -> list[str]:
    """Return warnings about the figures."""
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


AnyCell = TypeVar("AnyCell", bound=Cell)
DATASET, VARIANT, SEED = "dataset", "variant", "seed"
NO_AXIS = "none"
Axes = Mapping[str, Sequence[str]]
"""Values by the name of the axis, in the order of the document; only axes that vary."""


class ChosenAxes(NamedTuple):
    """Names the axes that were chosen for a figure."""

    x: str | None
    """Name of the horizontal axis; None if nothing varies."""
    y: str | None
    """Name of the vertical axis; None if one axis is enough."""


def find_axes(cells: Sequence[Cell]) -> Axes:
    """Return the datasets, variants, grid parameters and seeds that have several values."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in locate_cell(cell).items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items() if len(values) > 1}


def locate_cell(cell: Cell) -> dict[str, str]:
    """Return a cell's value on every axis."""
    dataset = cell.dataset if cell.corpus in (None, cell.dataset) else f"{cell.dataset} in {cell.corpus}"
    point = {path: format_value(value) for path, value in cell.point.items()}
    return {**point, VARIANT: cell.variant, DATASET: dataset, SEED: str(cell.seed)}


def format_value(value: Any) -> str:
    """Return a parameter's value as text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def choose(known: Axes, x: str | None, y: str | None) -> ChosenAxes:
    """Return the requested axes; by default parameters are preferred to variants and datasets.

    Raises:
        Invalid: the axis does not exist, or both are the same.
    """
    for field, name in (("x", x), ("y", y)):
        if name is not None and name not in known and (field, name) != ("y", NO_AXIS):
            raise Invalid(
                f"`{field}`: {name!r} has the same value in all cells, or does not exist",
                hint=f"use one of: {', '.join(known) or 'none'}",
            )
    if x is not None and x == y:
        raise Invalid("`y`: must differ from `x`", hint=f"choose another `y`, or y={NO_AXIS} for one axis")
    ordered = sorted(known, key=lambda name: name in (DATASET, VARIANT))
    along = x or next((name for name in ordered if name != y), None)
    return ChosenAxes(along, None if y == NO_AXIS else y or _choose_second(ordered, along))


def _choose_second(ordered: Sequence[str], x: str | None) -> str | None:
    """Return another parameter as the second axis; variants and datasets are used only without any parameter at
    all.
    """
    others = [name for name in ordered if name != x]
    parameters = [name for name in others if name not in (DATASET, VARIANT)]
    if parameters:
        return parameters[0]
    return next(iter(others), None) if x in (DATASET, VARIANT) else None


def split_by_figure(cells: Iterable[AnyCell], known: Axes, without: Iterable[str | None]) -> dict[str, list[AnyCell]]:
    """Return the cells of each figure by their common values, such as "variant dense, seed 1"."""
    names = [name for name in known if name not in without]
    found: dict[str, list[AnyCell]] = {}
    for cell in cells:
        at = locate_cell(cell)
        found.setdefault(", ".join(f"{name} {at[name]}" for name in names), []).append(cell)
    return found
