"""Jobs side by side by one measure: each with its certainty, and which differ on the items that they share."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from services.orchestrator.reports.compared import Compared, Comparison, Versus
from services.orchestrator.reports.drawing import spread_note
from services.orchestrator.reports.endings import ByContent, Counts, Endings, by_content, in_order, moved
from services.orchestrator.reports.facts import facts
from services.orchestrator.reports.finding import finding
from services.orchestrator.reports.measuring import check_scores, mean_of, not_measured
from services.orchestrator.reports.tally import accuracy
from shared.contracts.measures import ACCURACY, Measure
from shared.errors import Conflict, Invalid
from shared.rag.taxonomy import Ending
from shared.statistics import pairs, shares, significance
from shared.statistics.bootstrap import bootstrap
from shared.statistics.pairs import Pair
from shared.statistics.repeats import spread
from shared.statistics.shares import Graded, Table
from shared.storage import jobs, samples, verdicts
from shared.storage.database import Database
from shared.storage.states import TERMINAL
from shared.storage.stored import decoded_params

APART = "an item that only one side has a value for is in no pair; see `left_only` and `right_only`"
CORRECTED = (
    "p-values are corrected for {} comparisons (Holm), and `corrected` intervals (Bonferroni); those of `difference`"
    " are not"
)
BY_VERDICT = Measure(ACCURACY)


class System(NamedTuple):
    """What is compared: one way of answering, with its job for each dataset."""

    name: str
    jobs: Mapping[str, int]
    """jobs.id by dataset; systems are compared over the datasets that they share, items within each."""


class _Ended(NamedTuple):
    """How a job's samples ended."""

    counts: Counts
    samples: ByContent


class _Read(NamedTuple):
    """What the database says, by jobs.id."""

    facts: Mapping[int, Any]
    readings: verdicts.Readings
    accuracy: Mapping[int, Graded]
    shares: Mapping[int, Graded]
    repeats: Mapping[int, Mapping[int, tuple[float, int]]]
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
    """Every system with the one called `baseline`, or each with each; their tests are corrected together.

    `against` names the pairs, left and right, where it is neither. Jobs without any value by the measure stand in no
    pair's items.

    Items are the same where question and gold answer are, whatever the dataset is called and wherever they stand in it.

    Raises:
        Invalid: two systems have one name, or none is called `baseline`.
        Conflict: the jobs' scores are not of one kind.
    """
    wanted = _wanted(systems, baseline, against)
    rows = sorted({job for system in systems for job in system.jobs.values()})
    ended = {row: await _endings(database, row) for row in rows} if endings else {}
    async with database.snapshot() as connection:
        found = await facts(connection, rows)
        check_scores(measure, found.values())
        values = await verdicts.readings(connection, rows, measure)
        measured = await verdicts.shares(connection, values)
        read = _Read(
            facts=found,
            readings=values,
            accuracy=measured if measure == BY_VERDICT else await verdicts.graded(connection, rows),
            shares=measured,
            repeats=await verdicts.repeats(connection, values),
            common=await verdicts.common(connection, values, [both for pair in wanted for both in _matched(*pair)]),
            endings=ended,
        )
    return await to_thread.run_sync(_comparison, read, systems, wanted, baseline)


async def compare_jobs(
    database: Database, references: Sequence[str], baseline: str | None = None, measure: Measure = BY_VERDICT
) -> Comparison:
    """The same for single jobs; `baseline` may be one of them, or a further one.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference is ambiguous, a job was not measured, or two have values, but not for any common item.
        Invalid: there are fewer than two jobs.
    """
    async with database.transaction() as connection:
        asked = [each for each in (baseline, *references) if each is not None]
        rows = [await jobs.resolve(connection, each) for each in asked]
        known = await facts(connection, rows)
    if len(known) < 2:
        raise Invalid("a comparison needs at least two jobs", hint="mathrag job list")
    names = _names(list(known.values()))
    rows = list(dict.fromkeys(rows))
    systems = [System(names[row], {"": row}) for row in rows]
    against = None if baseline is None else names[rows[0]]
    found = await compare(database, systems, against, measure=measure, endings=True)
    for row, each in zip(rows, found.jobs, strict=True):
        if measure != BY_VERDICT and not each.items and each.endings.keys() - {Ending.FAILED}:
            raise not_measured(measure, known[row])
    graded = {each.name for each in found.jobs if each.items}
    for pair in found.pairs:
        if not pair.items and {pair.left, pair.right} <= graded:
            raise Conflict(
                f"jobs {pair.left!r} and {pair.right!r} have no item in common that both have a value for",
                hint="items are the same where question and gold answer are; ask both about the same dataset",
            )
    return found


def _wanted(
    systems: Sequence[System], baseline: str | None, against: Sequence[tuple[str, str]] | None
) -> list[tuple[System, System]]:
    by_name = {system.name: system for system in systems}
    if len(by_name) < len(systems):
        raise Invalid("two systems have the same name", hint="a pair is told by its names")
    if against is not None:
        return [(by_name[left], by_name[right]) for left, right in against]
    if baseline is None:
        return list(combinations(systems, 2))
    if baseline not in by_name:
        raise Invalid(f"`baseline`: none is called {baseline!r}", hint=f"one of: {', '.join(by_name)}")
    return [(system, by_name[baseline]) for system in systems if system.name != baseline]


async def _endings(database: Database, job: int) -> _Ended:
    counted, found = Endings(), ByContent()
    async for batch in samples.traced(database, job):
        counted.add(batch)
        found |= by_content(batch)
    return _Ended(counted.counts(), found)


def _names(known: Sequence[Any]) -> dict[int, str]:
    """The jobs' names; of those that share one, with the beginning of the id."""
    often = Counter(each.name for each in known)
    return {each.id: each.name if often[each.name] == 1 else f"{each.name} {str(each.public_id)[:8]}" for each in known}


def _matched(left: System, right: System) -> list[tuple[int, int]]:
    """Jobs of both over the same dataset."""
    return [(job, right.jobs[dataset]) for dataset, job in left.jobs.items() if dataset in right.jobs]


def _comparison(
    read: _Read, systems: Sequence[System], wanted: Sequence[tuple[System, System]], baseline: str | None
) -> Comparison:
    compared = [_compared(read, system) for system in systems]
    degrees = read.readings.measure.has_degrees
    tables = [[read.common.get(both, {}) for both in _matched(*pair)] for pair in wanted]
    count = sum(shares.items(strata) > 0 for strata in tables) or 1
    tests = [pairs.compared(strata, degrees=degrees, tests=count) for strata in tables]
    family = significance.together([each if each.items else None for each in tests])
    counted = {each.name: each.items for each in compared}
    found = [
        _versus(left.name, right.name, corrected or alone, counted, _moved(read, left, right))
        for (left, right), alone, corrected in zip(wanted, tests, family, strict=True)
    ]
    return Comparison(
        measure=read.readings.measure.name, baseline=baseline, finding=finding(compared, found, baseline),
        jobs=compared, pairs=found, notes=list(_notes(read, found)),
    )  # fmt: skip


def _compared(read: _Read, system: System) -> Compared:
    rows = list(system.jobs.values())
    measured = [read.shares.get(row, {}) for row in rows]
    together = _together(read.shares, rows)
    return Compared(
        name=system.name,
        jobs=tuple(uuid.UUID(str(read.facts[row].public_id)) for row in rows),
        datasets=tuple(read.facts[row].dataset for row in rows),
        pipeline=", ".join(sorted({read.facts[row].pipeline for row in rows})),
        items=together.total(),
        accuracy=accuracy(_together(read.accuracy, rows)),
        measured=mean_of(read.readings.measure, together, read.readings.unit),
        bootstrap=bootstrap([shares.values(each, read.readings.unit) for each in measured]),
        repeats=spread([_repeat(read, rows, number) for number in range(max(read.facts[row].repeats for row in rows))]),
        endings=in_order(sum((Counter(read.endings[row].counts) for row in rows if row in read.endings), Counter())),
    )


def _together(of: Mapping[int, Graded], rows: Sequence[int]) -> Counter[tuple[int, int]]:
    return sum((Counter(of.get(row, {})) for row in rows), Counter[tuple[int, int]]())


def _repeat(read: _Read, rows: Sequence[int], number: int) -> tuple[float, int]:
    """What the answers of one repeat are worth, and how many have a value, in all datasets."""
    counts = [read.repeats.get(row, {}).get(number, (0, 0)) for row in rows]
    return sum(right for right, _ in counts), sum(graded for _, graded in counts)


def _moved(read: _Read, left: System, right: System) -> dict[str, Counts]:
    both = _matched(left, right) if read.endings else []
    return moved((read.endings[one].samples, read.endings[other].samples) for one, other in both)


def _versus(left: str, right: str, pair: Pair, counted: Mapping[str, int], changed: dict[str, Counts]) -> Versus:
    return Versus(
        left=left,
        right=right,
        left_only=counted[left] - pair.items,
        right_only=counted[right] - pair.items,
        moved=changed,
        words=pairs.words(pair),
        **msgspec.structs.asdict(pair),
    )


def _notes(read: _Read, found: Sequence[Versus]) -> list[str]:
    """What a reader must know before quoting a figure."""
    said: dict[str, None] = {}
    for job in read.facts.values():
        if job.state not in TERMINAL:
            said[f"job {job.name!r} is not final: {job.in_progress} samples are still in progress"] = None
        if job.repeats > 1:
            params, problem = decoded_params(job.params, "its parameters")
            words = problem if params is None else spread_note(job.pipeline, params, job.reuse)
            said[f"job {job.name!r}: {words}"] = None
    if any(pair.left_only or pair.right_only for pair in found):
        said[APART] = None
    if len(found) > 1:
        said[CORRECTED.format(len(found))] = None
    return list(said)
