"""Compares jobs by one measure: each with its uncertainty, and which of them differ on the items that they share."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from services.orchestrator.reports.comparison_views import Compared, Comparison, Versus
from services.orchestrator.reports.drawing import describe_spread
from services.orchestrator.reports.endings import ByContent, Counts, Endings, count_moves, index_by_content, sort_counts
from services.orchestrator.reports.facts import load_facts
from services.orchestrator.reports.headline import write_finding
from services.orchestrator.reports.measure_means import check_scores, compute_mean, make_conflict
from services.orchestrator.reports.tally import compute_accuracy
from shared.errors import Conflict, Invalid
from shared.plurals import format_count
from shared.rag.provenance import Ending
from shared.shapes import ACCURACY, Measure
from shared.statistics import intervals
from shared.statistics import significance as significance_module
from shared.statistics.intervals import Graded, Table, bootstrap, measure_spread
from shared.statistics.significance import PairComparison
from shared.storage import jobs as stored_jobs
from shared.storage import samples as stored_samples
from shared.storage.database import TERMINAL, Database, try_decode_params

APART = "items that only one side has a value for are left out of the pair; see `left_only` and `right_only`"
CORRECTED = (
    "p-values are corrected for {} comparisons (Holm), and `corrected` intervals (Bonferroni); those of `difference`"
    " are not"
)
BY_VERDICT = Measure(ACCURACY)


class System(NamedTuple):
    """What is compared: one way of answering, with one job per dataset."""

    name: str
    jobs: Mapping[str, int]
    """jobs.id by dataset. Systems are compared on the datasets that they share, and on the items within each."""


class _Ended(NamedTuple):
    """How a job's samples ended."""

    counts: Counts
    samples: ByContent


class _Read(NamedTuple):
    """What was read from the database, by jobs.id."""

    facts: Mapping[int, Any]
    readings: stored_jobs.SampleValues
    accuracy: Mapping[int, Graded]
    shares: Mapping[int, Graded]
    repeats: Mapping[int, Mapping[int, tuple[float, int]]]
    questions: Mapping[int, int]
    """Number of different items that have a value; one that a dataset lists twice is counted once."""
    common: Mapping[tuple[int, int], Table]
    endings: Mapping[int, _Ended]


async def compare(
    database: Database,
    systems: Sequence[System],
    baseline: str | None = None,
    *,
    measure: Measure = BY_VERDICT,
    against: Sequence[tuple[str, str]] | None = None,
    endings: bool = False,
) -> Comparison:
    """Compare every system with the one called `baseline`, or every pair if it is None; all tests are corrected
    together.

    `against` names the pairs, left and right, for any other choice. Items without a value of the measure count in no
    pair.

    Items match if question and gold answer are equal, whatever the dataset is called and whatever their position.

    Raises:
        Invalid: two systems have the same name, or none is called `baseline`.
        Conflict: the jobs' scores are not of the same kind.
    """
    wanted = _list_pairs(systems, baseline, against)
    rows = sorted({job for system in systems for job in system.jobs.values()})
    ended = {row: await _load_endings(database, row) for row in rows} if endings else {}
    async with database.snapshot() as connection:
        found = await load_facts(connection, rows)
        check_scores(measure, found.values())
        values = await stored_jobs.load_values(connection, rows, measure)
        measured = await stored_jobs.count_shares(connection, values)
        read = _Read(
            facts=found,
            readings=values,
            accuracy=measured if measure == BY_VERDICT else await stored_jobs.count_verdicts(connection, rows),
            shares=measured,
            repeats=await stored_jobs.sum_repeats(connection, values),
            questions=await stored_jobs.count_questions(connection, values),
            common=await stored_jobs.count_common(
                connection, values, [both for pair in wanted for both in _match_jobs(*pair)]
            ),
            endings=ended,
        )
    return await to_thread.run_sync(_make_comparison, read, systems, wanted, baseline)


async def compare_jobs(
    database: Database, references: Sequence[str], baseline: str | None = None, measure: Measure = BY_VERDICT
) -> Comparison:
    """Compare single jobs; `baseline` may be one of them, or a further one.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference is ambiguous, a job was not measured, or two jobs have no measured item in common.
        Invalid: there are fewer than two jobs.
    """
    async with database.transaction() as connection:
        all_references = [each for each in (baseline, *references) if each is not None]
        rows = [await stored_jobs.resolve(connection, each) for each in all_references]
        known = await load_facts(connection, rows)
    if len(known) < 2:
        raise Invalid("a comparison needs at least two jobs", hint="mathrag job list")
    names = _name_jobs(list(known.values()))
    rows = list(dict.fromkeys(rows))
    systems = [System(names[row], {"": row}) for row in rows]
    against = None if baseline is None else names[rows[0]]
    found = await compare(database, systems, against, measure=measure, endings=True)
    for row, each in zip(rows, found.jobs, strict=True):
        if measure != BY_VERDICT and not each.items and each.endings.keys() - {Ending.FAILED}:
            raise make_conflict(measure, known[row])
    graded = {each.name for each in found.jobs if each.items}
    for pair in found.pairs:
        if not pair.items and {pair.left, pair.right} <= graded:
            raise Conflict(
                f"jobs {pair.left!r} and {pair.right!r} have no measured item in common",
                hint="items match if question and gold answer are equal: run both jobs on the same dataset",
            )
    return found


def _list_pairs(
    systems: Sequence[System], baseline: str | None, against: Sequence[tuple[str, str]] | None
) -> list[tuple[System, System]]:
    by_name = {system.name: system for system in systems}
    if len(by_name) < len(systems):
        raise Invalid("two systems have the same name", hint="rename one of them: pairs are identified by names")
    if against is not None:
        return [(by_name[left], by_name[right]) for left, right in against]
    if baseline is None:
        return list(combinations(systems, 2))
    if baseline not in by_name:
        raise Invalid(f"`baseline`: no system is called {baseline!r}", hint=f"use one of: {', '.join(by_name)}")
    return [(system, by_name[baseline]) for system in systems if system.name != baseline]


async def _load_endings(database: Database, job: int) -> _Ended:
    counted, found = Endings(), ByContent()
    async for batch in stored_samples.stream_with_outcomes(database, job):
        counted.add(batch)
        found |= index_by_content(batch)
    return _Ended(counted.counts(), found)


def _name_jobs(known: Sequence[Any]) -> dict[int, str]:
    """Return the jobs' names; a name that several jobs share is followed by the beginning of the id."""
    often = Counter(each.name for each in known)
    return {each.id: each.name if often[each.name] == 1 else f"{each.name} {str(each.public_id)[:8]}" for each in known}


def _match_jobs(left: System, right: System) -> list[tuple[int, int]]:
    """Return the pairs of jobs of both systems over the same dataset."""
    return [(job, right.jobs[dataset]) for dataset, job in left.jobs.items() if dataset in right.jobs]


def _make_comparison(
    read: _Read, systems: Sequence[System], wanted: Sequence[tuple[System, System]], baseline: str | None
) -> Comparison:
    compared = [_make_compared(read, system) for system in systems]
    degrees = read.readings.measure.has_degrees
    tables = [[read.common.get(both, {}) for both in _match_jobs(*pair)] for pair in wanted]
    count = sum(intervals.count_items(strata) > 0 for strata in tables) or 1
    tests = [significance_module.compare_pair(strata, degrees=degrees, tests=count) for strata in tables]
    family = significance_module.correct_family([each if each.items else None for each in tests])
    counted = {system.name: sum(read.questions.get(row, 0) for row in system.jobs.values()) for system in systems}
    found = [
        _make_versus(left.name, right.name, corrected or alone, counted, _count_moves(read, left, right))
        for (left, right), alone, corrected in zip(wanted, tests, family, strict=True)
    ]
    return Comparison(
        measure=read.readings.measure.name, baseline=baseline, finding=write_finding(compared, found, baseline),
        jobs=compared, pairs=found, notes=list(_list_notes(read, found)),
    )  # fmt: skip


def _make_compared(read: _Read, system: System) -> Compared:
    rows = list(system.jobs.values())
    measured = [read.shares.get(row, {}) for row in rows]
    together = _sum_items(read.shares, rows)
    return Compared(
        name=system.name,
        jobs=tuple(uuid.UUID(str(read.facts[row].public_id)) for row in rows),
        datasets=tuple(read.facts[row].dataset for row in rows),
        pipeline=", ".join(sorted({read.facts[row].pipeline for row in rows})),
        items=together.total(),
        accuracy=compute_accuracy(_sum_items(read.accuracy, rows)),
        measured=compute_mean(read.readings.measure, together, read.readings.unit),
        bootstrap=bootstrap([intervals.count_values(each, read.readings.unit) for each in measured]),
        repeats=measure_spread(
            [_repeat(read, rows, number) for number in range(max(read.facts[row].repeats for row in rows))]
        ),
        endings=sort_counts(sum((Counter(read.endings[row].counts) for row in rows if row in read.endings), Counter())),
    )


def _sum_items(of: Mapping[int, Graded], rows: Sequence[int]) -> Counter[tuple[int, int]]:
    return sum((Counter(of.get(row, {})) for row in rows), Counter[tuple[int, int]]())


def _repeat(read: _Read, rows: Sequence[int], number: int) -> tuple[float, int]:
    """Return the summed value of one repeat's answers over all datasets, and the number of answers with a value; none
    if some dataset has no value in this repeat, so that all repeats are over the same items.
    """
    counts = [read.repeats[row].get(number, (0, 0)) for row in rows if row in read.repeats]
    if not all(graded for _, graded in counts):
        return 0, 0
    return sum(right for right, _ in counts), sum(graded for _, graded in counts)


def _count_moves(read: _Read, left: System, right: System) -> dict[str, Counts]:
    both = _match_jobs(left, right) if read.endings else []
    return count_moves((read.endings[one].samples, read.endings[other].samples) for one, other in both)


def _make_versus(
    left: str, right: str, pair: PairComparison, counted: Mapping[str, int], changed: dict[str, Counts]
) -> Versus:
    return Versus(
        left=left,
        right=right,
        left_only=counted[left] - pair.items,
        right_only=counted[right] - pair.items,
        moved=changed,
        words=significance_module.describe_pair(pair),
        **msgspec.structs.asdict(pair),
    )


def _list_notes(read: _Read, found: Sequence[Versus]) -> list[str]:
    """Return what a reader must know before quoting a figure."""
    said: dict[str, None] = {}
    for job in read.facts.values():
        if job.state not in TERMINAL:
            left = format_count(job.in_progress, "sample is", "samples are")
            said[f"job {job.name!r} is not final: {left} still in progress"] = None
        if job.repeats > 1:
            params, problem = try_decode_params(job.params, "its parameters")
            words = problem if params is None else describe_spread(job.pipeline, params, job.reuse)
            said[f"job {job.name!r}: {words}"] = None
    if any(pair.left_only or pair.right_only for pair in found):
        said[APART] = None
    if len(found) > 1:
        said[CORRECTED.format(len(found))] = None
    return list(said)
