"""Compare jobs: measures, differences with their significance, and prompts side by side."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any, Literal, NamedTuple

import msgspec
from anyio import to_thread

from mathrag import intervals
from mathrag.errors import Conflict, Invalid
from mathrag.intervals import Graded, Interval, Repeats, Table, bootstrap, measure_spread
from mathrag.messages import format_count, make_hint
from services.orchestrator.reports.tally import (
    Accuracy,
    ByContent,
    Counts,
    compute_accuracy,
    count_moves,
    describe_spread,
    index_by_content,
    load_facts,
    sort_counts,
)
from services.orchestrator.reports.warnings import list_demonstration_warnings
from shared.rag.answer_metrics import SPLITTING, find_metric, list_scores
from shared.rag.grading import GRADERS, grader_of_results
from shared.rag.provenance import Ending
from shared.records import Provenance
from shared.replies import Generated
from shared.shapes import ACCURACY, EXACT, OFFERED, SCORE, Measure, find_measure
from shared.statistics import significance
from shared.statistics.significance import Mean, PairComparison, compare_pair, correct_family, describe_pair
from shared.storage import jobs, samples
from shared.storage.database import TERMINAL, Database, try_decode_params
from shared.storage.provenance import load_provenance
from shared.storage.samples import stream_endings


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all its datasets."""

    name: str
    """Name of the system."""
    jobs: tuple[uuid.UUID, ...]
    """Ids of the jobs, one for each dataset, in the order of `datasets`."""
    datasets: tuple[str, ...]
    """Names of the datasets."""
    pipeline: str
    """Name of the pipeline."""
    items: int
    """Number of items that have a value of the measure, over all datasets."""
    accuracy: Accuracy
    """Accuracy over all datasets."""
    measured: Mean
    """Mean of the measure, with Wilson's interval over items for a yes-or-no measure and Student's for a score."""
    bootstrap: Interval | None
    """Mean of the measure over items, resampled within datasets; null if nothing was measured."""
    repeats: Repeats
    """Accuracy or measure by repeat."""
    endings: dict[str, int]
    """Number of samples by ending (docs/explanation/statistics.md). Empty unless requested, because it reads every
    reply."""


class Versus(PairComparison, frozen=True, kw_only=True):
    """Two systems on their common items: `difference` is left minus right."""

    left: str
    """Name of the left system."""
    right: str
    """Name of the right system."""
    left_only: int
    """Items for which only the left system has a value; no figure of the pair counts them. An item that a dataset lists
    twice is one item of a pair."""
    right_only: int
    """Items for which only the right system has a value."""
    moved: dict[str, dict[str, int]]
    """Number of common samples by their ending on the left, and within it by their ending on the right; empty unless
    requested."""
    words: str
    """The comparison in one sentence."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The compared systems and the pairs of them. The tests of all pairs are corrected together (Holm)."""

    measure: str
    """Measure that was compared: `accuracy`, `exact`, `score`, `answer@K`, or a score of a metric."""
    baseline: str | None
    """Name of the system on the right side of every pair; null if all pairs are compared."""
    finding: str
    """The result in one sentence, which ranks only systems that the tests tell apart."""
    jobs: list[Compared]
    """The compared systems."""
    pairs: list[Versus]
    """The pairs."""
    measures: list[str]
    """Measures that these jobs can be compared by, except `answer@K`."""
    notes: list[str]
    """Remarks on the figures."""


MOST_NAMED = 3
"""Number of systems above which the sentence gives their count in place of their names."""


def find_best(systems: Sequence[Compared]) -> str | None:
    """Return the name of the first system with the highest value; None if no system has one."""
    known = [each for each in systems if each.measured.value is not None]
    return max(known, key=lambda each: each.measured.value or 0.0).name if known else None


def find_pair(found: Sequence[Versus], name: str, other: str | None) -> Versus | None:
    """Return the pair of `name` with `other`, or with its baseline if `other` is None; `name` is the left side."""
    for each in found:
        if each.left == name and other in (None, each.right):
            return each
        if other is not None and (each.right, each.left) == (name, other):
            return swap_sides(each)
    return None


def swap_sides(found: Versus) -> Versus:
    """Exchange the sides of a pair; `moved` is left out."""
    changed = msgspec.structs.replace(
        significance.reverse_pair(found),
        left=found.right, right=found.left, left_only=found.right_only, right_only=found.left_only, moved={},
    )  # fmt: skip
    return msgspec.structs.replace(changed, words=significance.describe_pair(changed))


def write_finding(systems: Sequence[Compared], found: Sequence[Versus], baseline: str | None) -> str:
    """State the result of a comparison in one sentence that ranks only systems which the tests tell apart.

    `baseline` is the right side of all pairs; None if every pair was compared.
    """
    known, first = [each for each in found if each.items], find_best(systems)
    if not known or first is None:
        return "Nothing can be compared yet: no item has been measured in two systems"
    if baseline is not None:
        ordered = sorted(known, key=get_difference, reverse=True)
        better = [each for each in ordered if each.separable and get_difference(each) > 0]
        worse = [each for each in reversed(ordered) if each.separable and get_difference(each) < 0]
        n = _format_items(known)
        if better:
            beats = _choose_verb(better, "beats", "beat")
            sentence = f"{_join_names(better)} {beats} {baseline} at {n}, by {_format_points(better)}"
        else:
            sentence = f"No variant beats {baseline} at {n}{_describe_lead(ordered[0])}"
        if worse:
            sentence += f"; {_join_names(worse)} {_choose_verb(worse, 'is', 'are')} worse, by {_format_points(worse)}"
        return sentence
    of_first = [swap_sides(each) if each.left == first else each for each in known if first in (each.left, each.right)]
    others = sorted(of_first, key=get_difference, reverse=True)
    beaten = [each for each in others if each.separable]
    n = _format_items(known)
    if beaten and len(beaten) == len(others):
        whom = beaten[0].left if len(beaten) == 1 else "all others"
        return f"{first} beats {whom} at {n}, by {_format_points(beaten)}"
    if beaten:
        level = [each for each in others if not each.separable]
        beats = f"{first} beats {_join_names(beaten)} at {n}"
        return f"{beats}; {_join_names(level)} {_choose_verb(level, 'is', 'are')} not separable from it"
    some = any(each.separable for each in known)
    sentence = f"No variant stands out at {n}" if some else f"No two are separable at {n}"
    return sentence + (_describe_lead(swap_sides(others[0])) if others else "")


def get_difference(each: Versus) -> float:
    """Return left minus right; 0 if no item has a value on both sides."""
    return each.difference.value or 0.0 if each.difference else 0.0


def _describe_lead(each: Versus) -> str:
    return f"; {each.left} leads by {_format_points([each])}, not separable" if get_difference(each) > 0 else ""


def _join_names(found: Sequence[Versus]) -> str:
    """Name the left sides."""
    names = [each.left for each in found]
    if len(names) > MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _choose_verb(found: Sequence[Versus], one: str, several: str) -> str:
    return one if len(found) == 1 else several


def _format_points(found: Sequence[Versus]) -> str:
    """Return the range of differences, such as "10 points" or "2.5 to 10 points"."""
    sizes = sorted({f"{100 * abs(get_difference(each)):.1f}".removesuffix(".0") for each in found}, key=float)
    return f"{' to '.join(dict.fromkeys((sizes[0], sizes[-1])))} {'point' if sizes == ['1'] else 'points'}"


def _format_items(found: Sequence[Versus]) -> str:
    """Return the range of item counts, such as "n = 40" or "n = 36 to 40"."""
    counts = sorted({each.items for each in found})
    return f"n = {' to '.join(f'{count:,}' for count in dict.fromkeys((counts[0], counts[-1])))}"


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
        Invalid: no measure has this name.
    """
    try:
        found = find_measure(name)
    except LookupError as error:
        raise Invalid(f"`measure`: {error.args[0]}") from error
    if found.of_metric and name not in list_scores():
        hint = make_hint(name, [ACCURACY, EXACT, SCORE, *list_scores()], "mathrag job show JOB")
        raise Invalid(f"`measure`: unknown measure {name!r}: name one of {OFFERED}", hint=hint)
    return found


def list_measures(facts: Iterable[Any]) -> list[str]:
    """List the measures that these jobs may have: those of every job, and the scores of their metrics."""
    names: dict[str, None] = {}
    for job in facts:
        params, _ = try_decode_params(job.params, "")
        names |= dict.fromkeys(params.metrics.names if params else ())
    known = [metric for metric in map(find_metric, names) if metric is not None]
    return [ACCURACY, EXACT, SCORE, *(score for metric in known for score in metric.scores)]


def compute_mean(measured: Measure, items: Graded, unit: int = 1) -> Mean:
    """Return the mean over items: of a score with Student's interval, of a yes-or-no measure with Wilson's."""
    if measured.has_degrees:
        values = intervals.count_values(items, unit)
        return significance.estimate_mean([float(value) for value, count in values.items() for _ in range(count)])
    found = compute_accuracy(items)
    low, high = (None, None) if found.value is None else (found.low, found.high)
    return Mean(value=found.value, low=low, high=high, n=sum(items.values()))


def check_scores(measured: Measure, facts: Iterable[Any]) -> None:
    """Check that the scores of these jobs are of the same kind, if scores are measured.

    Raises:
        Conflict: they are ratings, mix token F1 with F1 of sets, or were labelled by different judge models or in
            different units.
    """
    if measured.of_metric:
        _check_labelled_alike(measured, facts)
    if measured.name != SCORE:
        return
    kinds = {found.score: job.name for job in facts if (found := grader_of_results(_find_grader(job))).score}
    if any(each.most != 1 for each in GRADERS.values() if each.score in kinds):
        raise Conflict(
            "`score`: ratings from 1 to 5 cannot be compared as shares",
            hint="use `accuracy`, which counts ratings of at least `grading.rating`",
        )
    if len(kinds) > 1:
        kind_list = "; ".join(f"in job {name!r} it is {kind}" for kind, name in kinds.items())
        raise Conflict(f"`score` has different meanings: {kind_list}", hint="give all jobs the same `grading.grader`")


def _check_labelled_alike(measured: Measure, facts: Iterable[Any]) -> None:
    """Check that one judge model labelled the answers of these jobs, split in the same way where the metric splits
    them.
    """
    ways: dict[tuple[str, ...], str] = {}
    for job in facts:
        params, _ = try_decode_params(job.params, "")
        metrics = map(find_metric, params.metrics.names if params else ())
        given = next((each for each in metrics if each is not None and measured.name in each.scores), None)
        if params is not None and given is not None:
            unit = (f"unit `{params.metrics.unit}`",) if given.name in SPLITTING else ()
            ways.setdefault((f"judge model {job.judge}", *unit), job.name)
    if len(ways) > 1:
        listed = "; ".join(f"{', '.join(way)} in job {name!r}" for way, name in ways.items())
        raise Conflict(
            f"`{measured.name}` was not labelled in the same way: {listed}",
            hint="measure all jobs with the same judge model and `metrics.unit`",
        )


def make_conflict(measured: Measure, job: Any) -> Conflict:
    """Return the error for a job without a value of a measure, with the reason and what to do."""
    if measured.of_metric:
        return Conflict(
            f"job {job.name!r} has no value of `{measured.name}`: it was not measured, or it applies to no answer",
            hint=f"submit the job again with the metric that gives `{measured.name}`: mathrag job submit --metric NAME",
        )
    why = WHY.get(measured.name, _ANSWER).format(_find_grader(job))
    return Conflict(
        f"job {job.name!r} was not measured by `{measured.name}`: {why}",
        hint="leave the job out, choose another `measure`, or submit it again with another `grading.grader`",
    )


def _find_grader(job: Any) -> str:
    params, _ = try_decode_params(job.params, "")
    return (params.grading.grader if params else "") or "math"


APART = "items that only one side has a value for are left out of the pair; see `left_only` and `right_only`"
CORRECTED = (
    "p-values are corrected for {} comparisons (Holm), and `corrected` intervals (Bonferroni); those of `difference`"
    " are not"
)
BY_VERDICT = Measure(ACCURACY)
JOBS_AT_ONCE = 2
"""Jobs whose endings are read at once: one is decoded while the database looks up the other."""


class System(NamedTuple):
    """A compared system: one way of answering, with one job per dataset."""

    name: str
    jobs: Mapping[str, int]
    """jobs.id by dataset. Systems are compared on the datasets that they share, and on the items within each."""


class _Ended(NamedTuple):
    """How a job's samples ended."""

    counts: Counts
    samples: ByContent


class _Read(NamedTuple):
    """The rows of the database, by jobs.id."""

    facts: Mapping[int, Any]
    readings: jobs.SampleValues
    accuracy: Mapping[int, Graded]
    shares: Mapping[int, Graded]
    repeats: Mapping[int, Mapping[int, tuple[float, int]]]
    questions: Mapping[int, int]
    """Number of different items that have a value; one that a dataset lists twice is counted once."""
    common: Mapping[tuple[int, int], Table]
    endings: Mapping[int, _Ended]
    warnings: Sequence[str]
    """Warnings about demonstration models."""


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

    Items match if question and gold answer are equal, regardless of the dataset's name and their position.

    Raises:
        Invalid: two systems have the same name, or none is called `baseline`.
        Conflict: the jobs' scores are not of the same kind.
    """
    wanted = _list_pairs(systems, baseline, against)
    matches = [both for pair in wanted for both in _match_jobs(*pair)]
    rows = sorted({job for system in systems for job in system.jobs.values()})
    at_once = asyncio.Semaphore(JOBS_AT_ONCE)

    async def load_endings(row: int) -> _Ended:
        counted, by_content = Counter[str](), ByContent()
        async with at_once:
            async for batch in stream_endings(database, row):
                counted.update(each.ending for each in batch)
                by_content |= index_by_content(batch)
        return _Ended(sort_counts(counted), by_content)

    try:
        async with asyncio.TaskGroup() as group:
            loading = {row: group.create_task(load_endings(row)) for row in rows if endings}
    except* Exception as failures:  # noqa: BLE001  # raised again alone: handlers go by its type
        raise failures.exceptions[0] from None
    ended = {row: task.result() for row, task in loading.items()}
    async with database.snapshot() as connection:
        found = await load_facts(connection, rows)
        check_scores(measure, found.values())
        values = await jobs.load_values(connection, rows, measure)
        measured = await jobs.count_shares(connection, values)
        read = _Read(
            facts=found,
            readings=values,
            accuracy=measured if measure == BY_VERDICT else await jobs.count_verdicts(connection, rows),
            shares=measured,
            repeats=await jobs.sum_repeats(connection, values),
            questions=await jobs.count_questions(connection, values),
            common=await jobs.count_common(connection, values, matches),
            endings=ended,
            warnings=await list_demonstration_warnings(connection, rows),
        )
    return await to_thread.run_sync(_make_comparison, read, systems, wanted, baseline)


async def compare_jobs(
    database: Database, references: Sequence[str], baseline: str | None = None, measure: Measure = BY_VERDICT
) -> Comparison:
    """Compare single jobs; `baseline` may be one of them, or a further one.

    Raises:
        NotFound: the job does not exist.
        Conflict: a reference is ambiguous, a job was not measured, or two jobs have no measured item in common.
        Invalid: there are fewer than two jobs.
    """
    async with database.transaction() as connection:
        all_references = [each for each in (baseline, *references) if each is not None]
        rows = [await jobs.resolve(connection, each) for each in all_references]
        known = await load_facts(connection, rows)
    if len(known) < 2:
        raise Invalid("a comparison needs at least two jobs", hint="mathrag job list")
    # A name that several jobs share is followed by the beginning of the id.
    often = Counter(each.name for each in known.values())
    names = {
        row: each.name if often[each.name] == 1 else f"{each.name} {str(each.public_id)[:8]}"
        for row, each in known.items()
    }
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
                hint="run both jobs on the same dataset: items match if question and gold answer are equal",
            )
    return found


def _list_pairs(
    systems: Sequence[System], baseline: str | None, against: Sequence[tuple[str, str]] | None
) -> list[tuple[System, System]]:
    by_name = {system.name: system for system in systems}
    if len(by_name) < len(systems):
        raise Invalid("two systems have the same name", hint="give each system a different name")
    if against is not None:
        return [(by_name[left], by_name[right]) for left, right in against]
    if baseline is None:
        return list(combinations(systems, 2))
    if baseline not in by_name:
        raise Invalid(f"`baseline`: no system is called {baseline!r}", hint=f"use one of: {', '.join(by_name)}")
    return [(system, by_name[baseline]) for system in systems if system.name != baseline]


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
    tests = [compare_pair(strata, degrees=degrees, tests=count) for strata in tables]
    family = correct_family([each if each.items else None for each in tests])
    counted = {system.name: sum(read.questions.get(row, 0) for row in system.jobs.values()) for system in systems}
    found = []
    for (left, right), alone, corrected in zip(wanted, tests, family, strict=True):
        pair, both = corrected or alone, _match_jobs(left, right) if read.endings else []
        versus = Versus(
            left=left.name,
            right=right.name,
            left_only=counted[left.name] - pair.items,
            right_only=counted[right.name] - pair.items,
            moved=count_moves((read.endings[one].samples, read.endings[other].samples) for one, other in both),
            words=describe_pair(pair),
            **msgspec.structs.asdict(pair),
        )
        found.append(versus)
    return Comparison(
        measure=read.readings.measure.name, baseline=baseline, finding=write_finding(compared, found, baseline),
        jobs=compared, pairs=found, measures=list_measures(read.facts.values()), notes=list(_list_notes(read, found)),
    )  # fmt: skip


def _make_compared(read: _Read, system: System) -> Compared:
    rows = list(system.jobs.values())
    measured = [read.shares.get(row, {}) for row in rows]
    together = _sum_items(read.shares, rows)
    repeats: list[tuple[float, int]] = []
    for number in range(max(read.facts[row].repeats for row in rows)):
        counts = [read.repeats[row].get(number, (0, 0)) for row in rows if row in read.repeats]
        # A repeat without a value of some dataset has none, so that all repeats are over the same items.
        known = counts if all(graded for _, graded in counts) else []
        repeats.append((sum(right for right, _ in known), sum(graded for _, graded in known)))
    return Compared(
        name=system.name,
        jobs=tuple(uuid.UUID(str(read.facts[row].public_id)) for row in rows),
        datasets=tuple(read.facts[row].dataset for row in rows),
        pipeline=", ".join(sorted({read.facts[row].pipeline for row in rows})),
        items=together.total(),
        accuracy=compute_accuracy(_sum_items(read.accuracy, rows)),
        measured=compute_mean(read.readings.measure, together, read.readings.unit),
        bootstrap=bootstrap([intervals.count_values(each, read.readings.unit) for each in measured]),
        repeats=measure_spread(repeats),
        endings=sort_counts(sum((Counter(read.endings[row].counts) for row in rows if row in read.endings), Counter())),
    )


def _sum_items(of: Mapping[int, Graded], rows: Sequence[int]) -> Counter[tuple[int, int]]:
    return sum((Counter(of.get(row, {})) for row in rows), Counter[tuple[int, int]]())


def _list_notes(read: _Read, found: Sequence[Versus]) -> list[str]:
    """Return warnings about the figures."""
    said: dict[str, None] = dict.fromkeys(read.warnings)
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


MOST_CHARACTERS, MOST_LINES = 20_000, 400
"""Limits of each prompt. Lines are compared pairwise at worst: 400 take 0.2 s, 10,000 took 26 s."""
AROUND = 3
"""Number of equal lines shown around a difference."""
Side = Literal["both", "left", "right", "gap"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of one prompt or of both; `gap` replaces equal lines that are left out."""

    side: Side
    """Whether both prompts have the line or only one; `gap` replaces equal lines that are left out."""
    text: str
    """The line."""


class PromptDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two prompts, without their equal parts."""

    lines: list[DiffLine]
    """Lines of the difference; empty if the compared parts are equal."""
    cut: bool
    """Whether only the first 20,000 characters, or 400 lines, of each were compared."""


def compare_prompts(left: str, right: str) -> PromptDifference:
    """Return the lines that only one of two prompts has, with the lines around them.

    Limits keep hostile texts from taking long.
    """
    one, other = _split_lines(left), _split_lines(right)
    cut = ["\n".join(one), "\n".join(other)] != [left, right]
    lines: list[DiffLine] = []
    end = 0
    for group in SequenceMatcher(None, one, other).get_grouped_opcodes(AROUND):
        if group[0][1] > end:
            lines.append(DiffLine(side="gap", text=f"{group[0][1] - end} equal lines"))
        for tag, from_left, to_left, from_right, to_right in group:
            if tag == "equal":
                lines += _mark_all("both", one[from_left:to_left])
            else:
                lines += [*_mark_all("left", one[from_left:to_left]), *_mark_all("right", other[from_right:to_right])]
        end = group[-1][2]
    if 0 < end < len(one):
        lines.append(DiffLine(side="gap", text=f"{len(one) - end} equal lines"))
    return PromptDifference(lines=lines, cut=cut)


def _split_lines(prompt: str) -> list[str]:
    return prompt[:MOST_CHARACTERS].split("\n")[:MOST_LINES]


def _mark_all(side: Side, lines: list[str]) -> list[DiffLine]:
    return [DiffLine(side=side, text=line) for line in lines]


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one question in two jobs."""

    left_name: str
    """Name of the left job."""
    right_name: str
    """Name of the right job."""
    left: Provenance
    """The left job's sample."""
    right: Provenance
    """The right job's sample."""
    prompts: PromptDifference | None
    """Differences between the prompts of the answers; null if a sample has no prompt, or if its template belongs to
    another release."""


async def load_side_by_side(database: Database, left: str, right: str, index: int, repeat: int) -> SideBySide:
    """Return the left job's sample, and the right job's sample of the same question.

    Raises:
        NotFound: a job or the sample does not exist, or the right job has no sample of the question.
        Conflict: a reference is ambiguous.
        Invalid: both references name the same job.
    """
    found = await samples.find_match(database, left, right, index, repeat)
    one = await load_provenance(database, left, index, repeat, prompts=True)
    two = await load_provenance(database, right, found.right_index, repeat, prompts=True)
    asked, of_other = find_prompt(one), find_prompt(two)
    difference = None
    if asked is not None and of_other is not None:
        difference = await to_thread.run_sync(compare_prompts, asked, of_other)
    return SideBySide(left_name=found.left_name, right_name=found.right_name, left=one, right=two, prompts=difference)


def find_prompt(sample: Provenance) -> str | None:
    """Return the prompt of the text that the sample answers with; None if nothing was generated."""
    for step in reversed(sample.steps):
        reply = step.attempt.reply if step.attempt else None
        if step.role == "generate" and isinstance(reply, Generated) and reply.text == sample.text:
            return step.prompt
    return None
