"""Tally samples: verdicts, endings, and draws."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Unreadable
from mathrag.intervals import (
    CLUSTERED,
    Graded,
    Interval,
    Repeats,
    bootstrap,
    count_values,
    estimate_share,
    explain_repeats,
    measure_spread,
)
from shared.params import Params
from shared.pipelines.imported import IMPORTED
from shared.pipelines.measured import MEASURED
from shared.rag.provenance import Ending
from shared.runtime.price import is_greedy, list_drawn_roles
from shared.samples import ExtractedBy, Extraction, Outcome, SampleRow
from shared.storage.database import sql
from shared.storage.samples import SampleEnding, SampleWithOutcome

LISTED = 20
"""Maximum number of items that are listed because two evaluations differ on them."""
UNKNOWN = "unknown"
"""Level or subject of an item that has none."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items with Wilson's 95 % interval. Each item counts once, by the share of its graded answers that are
    correct."""

    value: float | None
    """Mean over items; null if nothing was graded. It equals `correct` / `graded` if all items have the same number of
    graded answers."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    items: int
    """Number of items with a graded answer."""
    correct: int
    """Number of correct answers, over all repeats."""
    graded: int
    """Number of graded answers, over all repeats."""


def compute_accuracy(items: Graded) -> Accuracy:
    """Return the accuracy of answers counted by item."""
    found = estimate_share(count_values(items))
    return Accuracy(
        value=found.value,
        low=found.low,
        high=found.high,
        items=sum(items.values()),
        correct=sum(right * count for (right, _), count in items.items()),
        graded=sum(answers * count for (_, answers), count in items.items()),
    )


class Grades:
    """Verdicts of one grader, counted by item; the verdicts of an item must come one after another."""

    def __init__(self) -> None:
        self._before: Counter[tuple[int, int]] = Counter()
        self._item: int | None = None
        self._right = self._answers = 0

    def add(self, item: int, verdict: bool | None) -> None:  # noqa: FBT001 - the verdict is the added value
        """Count a verdict; None is a missing one."""
        if verdict is None:
            return
        if item != self._item:
            self._before.update(self._count_last())
            self._item, self._right, self._answers = item, 0, 0
        self._right += verdict
        self._answers += 1

    def _count_last(self) -> dict[tuple[int, int], int]:
        return {(self._right, self._answers): 1} if self._answers else {}

    def items(self) -> Graded:
        """Return how many items were answered correctly how often."""
        return self._before + Counter(self._count_last())

    def accuracy(self) -> Accuracy:
        return compute_accuracy(self.items())


class RepeatGrades:
    """Verdicts by repeat; the verdicts of an item must come one after another."""

    def __init__(self) -> None:
        self._repeats: dict[int, bool] = {}
        self._item: int | None = None
        self._verdicts: dict[int, bool] = {}
        self._items: Counter[int] = Counter()
        self._right: Counter[tuple[int, int]] = Counter()

    def add(self, item: int, repeat: int, verdict: bool | None) -> None:  # noqa: FBT001 - the verdict is the added value
        """Count a verdict; None is a missing one."""
        self._repeats[repeat] = self._repeats.get(repeat, False) or verdict is not None
        if item != self._item:
            self._count_item()
            self._item = item
        if verdict is not None:
            self._verdicts[repeat] = verdict

    def _count_item(self) -> None:
        """Count the item that was added last among those that have as many verdicts."""
        verdicts = len(self._verdicts)
        self._items[verdicts] += 1
        for repeat, right in self._verdicts.items():
            self._right[verdicts, repeat] += right
        self._verdicts = {}

    def counts(self) -> list[tuple[int, int]]:
        """Return (correct, graded) answers by repeat, of the items that have a verdict in every repeat that has any."""
        self._count_item()
        every = sum(self._repeats.values())
        return [
            (self._right[every, repeat], self._items[every] if graded else 0)
            for repeat, graded in sorted(self._repeats.items())
        ]


class TheirScores(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of the evaluation that an import came from, compared with those of this job."""

    right: int
    """Number of answers that the other evaluation calls right."""
    scored: int
    """Number of answers with a verdict of both evaluations; scores between 0 and 1 are not verdicts."""
    differing: int
    """Number of answers on which the two evaluations differ."""
    samples: list[int]
    """Indexes of the first items on which the two evaluations differ, each listed once."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over all samples."""

    items: int
    """Number of items with a completed or failed sample."""
    accuracy: Accuracy
    """Accuracy by the job's grader."""
    strict: Accuracy
    """Accuracy by Hendrycks' rules; for graders other than the mathematical one the share of exact matches."""
    disagreements: int
    """Number of samples on which the two graders disagree."""
    extraction: dict[str, int]
    """Completed samples by whether their answer was found."""
    extracted_by: dict[str, int]
    """Answers by the rule that found them in the reply."""
    theirs: TheirScores | None
    """Null if no answer was imported with a score."""
    failures: dict[str, int]
    """Number of failed samples by kind."""
    grading_failures: dict[str, int]
    truncated: int
    """Answers that were cut off."""
    truncated_by: dict[str, int]
    """Answers that were cut off, by the reason; `length` is the token limit."""
    unscored: int
    """Samples for which scoring was requested and no candidate has a score."""
    duplicates_dropped: int
    refused: int
    """Questions that were deliberately not answered, because no document was relevant enough."""
    decisions: dict[str, dict[str, int]]
    """Decisions of methods by stage and action; an action counts each time it was taken."""
    fallbacks: dict[str, dict[str, int]]
    """Number of fallbacks, by stage and the kind of failure that caused them."""
    bootstrap: Interval | None
    """Mean over items with its 95 % percentile interval, resampled by item; null if nothing was graded."""
    repeats: Repeats
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]


class SampleTally:
    """Collects samples."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._items = 0
        self._grades, self._strict, self._failed_as_wrong = Grades(), Grades(), Grades()
        self._levels: defaultdict[str, Grades] = defaultdict(Grades)
        self._subjects: defaultdict[str, Grades] = defaultdict(Grades)
        self._repeats = RepeatGrades()
        self._extraction: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._grading: Counter[str] = Counter()
        self._cuts: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self._differing: list[int] = []
        self._decisions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._fallbacks: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        for row, outcome in samples:
            self._grades.add(row.index, row.correct)
            self._failed_as_wrong.add(row.index, False if row.failure else row.correct)
            self._repeats.add(row.index, row.repeat, row.correct)
            self._strict.add(row.index, row.strict)
            self._levels[row.level or UNKNOWN].add(row.index, row.correct)
            self._subjects[row.subject or UNKNOWN].add(row.index, row.correct)
            if row.correct is not None and row.strict is not None:
                self._counts["disagreements"] += row.correct != row.strict
            self._count(row)
            if outcome is not None:
                self._count_decisions(outcome)
                for decision in outcome.trace.decisions:
                    score = decision.detail.get("score") if decision.stage == IMPORTED else None
                    if score not in (0, 1) or row.correct is None:
                        continue
                    self._counts["scored"] += 1
                    self._counts["right_by_them"] += bool(score)
                    if bool(score) != row.correct:
                        self._counts["differing"] += 1
                        if len(self._differing) < LISTED and self._differing[-1:] != [row.index]:
                            self._differing.append(row.index)

    def _count(self, row: SampleRow) -> None:
        if row.state != "cancelled":
            self._items += row.index != self._last
            self._last = row.index
        if row.extraction:
            self._extraction[row.extraction] += 1
        if row.failure:
            self._failures[row.failure] += 1
        if row.grading_failure:
            self._grading[row.grading_failure] += 1
        self._counts["truncated"] += row.truncated
        if row.truncated_by:
            self._cuts[row.truncated_by] += 1
        self._counts["unscored"] += row.unscored
        self._counts["duplicates"] += row.duplicates

    def _count_decisions(self, outcome: Outcome) -> None:
        self._counts["refused"] += outcome.refusal is not None
        if outcome.extraction is Extraction.OK:
            self._rules[outcome.extracted_by or ExtractedBy.BOXED] += 1
        for decision in outcome.trace.decisions:
            self._decisions[decision.stage][decision.action] += 1
            if decision.fallback is not None:
                self._fallbacks[decision.stage][decision.fallback] += 1

    def count_failures_as_wrong(self) -> Accuracy:
        """Return the accuracy if every failed sample counts as a wrong answer."""
        return self._failed_as_wrong.accuracy()

    def figures(self) -> Figures:
        counts, theirs = self._counts, None
        if scored := counts["scored"]:
            right, differing = counts["right_by_them"], counts["differing"]
            theirs = TheirScores(right=right, scored=scored, differing=differing, samples=self._differing)
        return Figures(
            items=self._items,
            accuracy=self._grades.accuracy(),
            strict=self._strict.accuracy(),
            bootstrap=bootstrap([count_values(self._grades.items())]),
            repeats=measure_spread(self._repeats.counts()),
            disagreements=counts["disagreements"],
            extraction=_sort(self._extraction),
            extracted_by=_sort(self._rules),
            theirs=theirs,
            failures=_sort(self._failures),
            grading_failures=_sort(self._grading),
            truncated=counts["truncated"],
            truncated_by=_sort(self._cuts),
            unscored=counts["unscored"],
            duplicates_dropped=counts["duplicates"],
            refused=counts["refused"],
            decisions={stage: _sort(self._decisions[stage]) for stage in sorted(self._decisions)},
            fallbacks={stage: _sort(self._fallbacks[stage]) for stage in sorted(self._fallbacks)},
            by_level=_compute_by_group(self._levels),
            by_subject=_compute_by_group(self._subjects),
        )


def _sort(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _compute_by_group(groups: dict[str, Grades]) -> dict[str, Accuracy]:
    """Return the accuracy of each group; empty if no item names its group."""
    return {name: groups[name].accuracy() for name in sorted(groups)} if groups.keys() - {UNKNOWN} else {}


Counts = dict[str, int]
ByContent = dict[int, str]
"""Ending by a hash of the item's content and the repeat, valid in this process."""
_ORDER = [each.value for each in Ending]


class Endings:
    """Counts samples by their ending; cancelled ones have none."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        self._counts.update(row.ending for row, _ in samples if row.ending is not None)

    def counts(self) -> Counts:
        """Return the endings that occur, in the order of `Ending`."""
        return sort_counts(self._counts)


def index_by_content(samples: Iterable[SampleEnding]) -> ByContent:
    """Return the endings of these samples by content, independent of their position in the dataset."""
    return {hash((each.item, each.repeat)): each.ending for each in samples}


def count_moves(jobs: Iterable[tuple[ByContent, ByContent]]) -> dict[str, Counts]:
    """Count the samples that ended in both jobs of a pair, by the ending on the left and then on the right.

    The diagonal is included: the sum of a row is the number of those samples that ended that way on the left.
    """
    pairs = Counter((was, right[each]) for left, right in jobs for each, was in left.items() if each in right)
    rows = {was: Counter({now: n for (before, now), n in pairs.items() if before == was}) for was, _ in pairs}
    return {was: sort_counts(rows[was]) for was in _ORDER if was in rows}


def sort_counts(counts: Mapping[str, int]) -> Counts:
    """Sort the counts in the order of `Ending`, so that two tables have the same rows."""
    return {each: counts[each] for each in _ORDER if each in counts}


def find_drawn_roles(pipeline: str, params: Params | None, reuse: str) -> list[str] | None:
    """Return the roles whose calls every repeat makes again, sorted; None if the pipeline or its parameters cannot be
    read.
    """
    if params is None:
        return None
    try:
        return sorted(list_drawn_roles(pipeline, params, reuse))
    except Unreadable:
        return None


def describe_spread(pipeline: str, params: Params, reuse: str) -> str:
    """Return warnings about the spread over repeats."""
    if pipeline in (IMPORTED, MEASURED):
        return CLUSTERED
    try:
        greedy = is_greedy(pipeline, params)
    except Unreadable:
        greedy = params.generate.temperature == 0
    judged = params.judge.per_repeat and bool(find_drawn_roles(pipeline, params, reuse))
    return explain_repeats(greedy=greedy, shared=reuse == "all", judged=judged)


FACTS = sql("""
    SELECT j.id, j.public_id, j.name, j.pipeline, d.name AS dataset, j.repeats, j.reuse, j.params, j.state,
        COALESCE((SELECT m.name FROM models m WHERE m.id = CAST(j.pins -> 'judge' ->> 'model_id' AS integer)), '')
            || ' ' || left(COALESCE(j.pins -> 'judge' ->> 'hash', ''), 8) AS judge,
        (SELECT count(*) FROM samples s
         WHERE s.job_id = j.id AND s.kind = 'item' AND s.state < {COMPLETED}) AS in_progress
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id WHERE j.id = ANY(:jobs)""")


async def load_facts(connection: AsyncConnection, rows: Collection[int]) -> dict[int, Any]:
    """Return the names, parameters, state and number of samples in progress of these jobs, by jobs.id."""
    return {row.id: row for row in await connection.execute(FACTS, {"jobs": sorted(rows)})}
