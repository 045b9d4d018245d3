"""The report of a job: accuracy, answers, scores, disagreements, contamination, cost and work."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from anyio import to_thread
from msgspec.structs import asdict
from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.formatting import format_accuracy
from mathrag.intervals import Interval, Repeats, bootstrap, count_values
from mathrag.messages import format_count
from services.orchestrator.reports.metrics import MetricFigures, Metrics, list_metric_warnings
from services.orchestrator.reports.repeatability import Repeatability, load_repeatability, rates_repeatedly
from services.orchestrator.reports.retrieval import Findings, Guided, Guiding, Retrieval
from services.orchestrator.reports.tally import (
    Accuracy,
    Endings,
    Grades,
    SampleTally,
    TheirScores,
    compute_accuracy,
    describe_spread,
    find_drawn_roles,
)
from services.orchestrator.reports.warnings import list_demonstration_warnings
from shared.calls import CALL_KINDS
from shared.params import Params
from shared.pipelines.binding import Pin
from shared.rag.grading import grader_of_results
from shared.records import Residency
from shared.samples import GateDecision
from shared.settings import Model, TokenPrice
from shared.shapes import make_answer_measure, measure_within
from shared.statistics import significance
from shared.statistics.significance import Mean
from shared.storage import jobs
from shared.storage.archive import show_archived
from shared.storage.database import Database, sql, try_decode
from shared.storage.provenance import load_residencies
from shared.storage.samples import SampleWithOutcome, has_gold_documents, load_gold_documents, stream_with_outcomes

KS = (1, 5, 10)


class AnswerAt(Accuracy, frozen=True, kw_only=True):
    """Share of samples with an answer in the first k candidates, as a mean over items with Wilson's interval: `graded`
    samples were examined, and `correct` of them have such a candidate."""

    bootstrap: Interval | None
    """Mean over items with its 95 % percentile interval."""


class AnswersFound:
    """Counts samples by the rank of the first candidate with an answer: R@k, which needs no relevance labels.

    Samples come in dataset order.
    """

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


class Contamination(msgspec.Struct, frozen=True, kw_only=True):
    """Items whose searches found a near-duplicate of the question. A job without searches has none."""

    items: int
    """Number of ended items."""
    affected: int
    """Number of items whose searches found a near-duplicate of the question."""
    documents: int
    """Number of near-duplicates that were dropped: the largest number of any sample of an item, summed over items."""
    share: float
    """Share of affected items: affected / items."""
    among: Accuracy
    """Accuracy on the affected items."""
    others: Accuracy
    """Accuracy on the other items, which no near-duplicate can have influenced."""


class Contaminated:
    """Measures how near-duplicates in the corpus relate to a job's accuracy.

    Retrieval drops documents whose problem repeats the question. The questions that had such a document may be easier
    for other reasons as well, because the model may have been trained on the same texts. Samples come in dataset order;
    all repeats of an item make the same searches.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._items = 0
        self._dropped: dict[int, int] = {}
        self._among, self._others = Grades(), Grades()

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples."""
        for row, _ in samples:
            if row.ending is None:
                continue
            self._items += row.index != self._last
            self._last = row.index
            if row.duplicates:
                self._dropped[row.index] = max(row.duplicates, self._dropped.get(row.index, 0))
            (self._among if row.duplicates else self._others).add(row.index, row.correct)

    def figures(self) -> Contamination | None:
        """Return the sums; None if no item is affected."""
        if not self._dropped:
            return None
        return Contamination(
            items=self._items,
            affected=len(self._dropped),
            documents=sum(self._dropped.values()),
            share=len(self._dropped) / self._items,
            among=self._among.accuracy(),
            others=self._others.accuracy(),
        )


MOST = 20
"""Samples in a report; `GET /v1/jobs/{job}/samples?differing=true` lists all."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, with both verdicts."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    answer: str | None
    """Extracted answer; null if none was found."""
    gold: str | None
    """Expected answer."""
    math_verify: bool
    """Verdict of the job's grader."""
    strict: bool
    """Verdict of the strict rules."""


class Disagreements:
    """Keeps the first `MOST` answers that the two graders judge differently, which a reader should check first."""

    def __init__(self) -> None:
        self.first: list[Disagreement] = []

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Search these samples, which come in dataset order."""
        for row, _ in samples:
            if len(self.first) == MOST:
                return
            if row.correct is not None and row.strict is not None and row.correct != row.strict:
                both = {"math_verify": row.correct, "strict": row.strict}
                self.first.append(
                    Disagreement(index=row.index, repeat=row.repeat, answer=row.answer, gold=row.gold, **both)
                )


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items; repeats of one item count once."""

    name: str
    """Name of the score, such as "token F1"."""
    mean: Mean
    """Mean over items."""


class Scores:
    """Averages the scores of graders that give them: token F1, F1 of a set, or a rating."""

    def __init__(self) -> None:
        self._items: defaultdict[int, list[float]] = defaultdict(list)

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those without a score are left out."""
        for row, _ in samples:
            if row.score is not None:
                self._items[row.index].append(row.score)

    def figures(self, name: str) -> Score | None:
        """Return the mean score of the grader called `name`; None if no sample has a score."""
        if not self._items:
            return None
        means = [sum(scores) / len(scores) for scores in self._items.values()]
        found = grader_of_results(name)
        return Score(name=found.score or "score", mean=significance.estimate_mean(means, found.most))


# A job's distinct calls; `made` means that one of the job's own steps put the call into the queue.
MINE = """
    WITH mine AS (
        SELECT t.call_id, bool_or(t.created) AS made FROM samples s JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = :job GROUP BY t.call_id)"""


def select_over_calls(select: str) -> TextClause:
    """Prefix `select` with the CTE `mine` and fill in the shared names."""
    return sql(f"{MINE} {select}")


STAGES = select_over_calls("""
    SELECT c.role, count(*) FILTER (WHERE mine.made) AS made, count(*) FILTER (WHERE NOT mine.made) AS reused,
        count(a.id) FILTER (WHERE mine.made) AS executed,
        count(*) FILTER (WHERE a.outcome IN ('unparsed', 'truncated')) AS unparsed,
        count(*) FILTER (WHERE mine.made AND EXISTS (
            SELECT 1 FROM attempts l WHERE l.call_id = c.id AND NOT l.accepted AND l.outcome = 'lapsed')) AS lapsed,
        min(a.started_at) FILTER (WHERE mine.made) AS first, max(a.ended_at) FILTER (WHERE mine.made) AS last,
        sum(a.prompt_tokens) FILTER (WHERE mine.made) AS prompt_tokens,
        sum(a.completion_tokens) FILTER (WHERE mine.made) AS completion_tokens,
        sum(extract(epoch FROM a.ended_at - a.started_at) / GREATEST(a.concurrency, 1)) AS device_s
    FROM mine JOIN calls c ON c.id = mine.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
    GROUP BY c.role""")
LOADS = select_over_calls("""
    SELECT DISTINCT r.epoch, c.model_id, loading.n FROM mine JOIN calls c ON c.id = mine.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id JOIN residencies r ON r.epoch = a.epoch
    CROSS JOIN {LOADS_OF_MODEL} WHERE mine.made ORDER BY 1, 2, 3""")
MODEL_ROLES = ("judge", "rerank", "write", "generate")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    made: int
    """Number of calls that this job put into the queue."""
    reused: int
    """Number of calls that another job had made before."""
    executed: int
    """Number of calls made that have a reply."""
    seconds: float | None
    """Seconds from the first start to the last end of the calls made; null if none was executed."""
    device_s: float | None
    """Estimated device time in seconds of all calls, made and reused: the duration of each call divided by the number
    of calls that its model computed when it began, including this call. It is the stage's cost without reuse. Null if
    no call has its times."""
    started_at: datetime | None
    """Start of the first call made; null if none was executed."""
    ended_at: datetime | None
    """End of the last call made; null if none was executed."""
    prompt_tokens: int | None = None
    """Prompt tokens of the calls made, as counted by the model server; null if no model was called or the server counts
    none."""
    completion_tokens: int | None = None
    """Reply tokens of the calls made, as counted by the model server; null if no model was called or the server counts
    none."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the job's calls."""

    model_loads: int
    """Loads of the models that answered calls made by this job: one for each epoch, and those in which a server that
    others share loaded a model again.
    """
    model_calls: int
    """Executed judge, rerank and generate calls made by this job."""
    calls_made: dict[str, int]
    calls_reused: dict[str, int]
    calls_lapsed: int
    """Calls made by this job whose worker, guard or model server was lost at least once. They may have run twice,
    and a lapsed call runs again alone (docs/how-to/operations.md, "The same answer").
    """
    parse_failures: int
    """Judge replies without a rating or label, among all calls of the job."""
    stages: dict[str, Stage]
    residencies: tuple[Residency, ...]


async def count_work(connection: AsyncConnection, job: int) -> Work:
    """Count the calls of the job with this row id."""
    rows = {row.role: row for row in await connection.execute(STAGES, {"job": job})}
    stages = {
        role: Stage(
            made=row.made,
            reused=row.reused,
            executed=row.executed,
            seconds=(row.last - row.first).total_seconds() if row.first and row.last else None,
            device_s=None if row.device_s is None else float(row.device_s),
            started_at=row.first,
            ended_at=row.last,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
        )
        for role in CALL_KINDS
        if (row := rows.get(role)) is not None
    }
    loads = (await connection.execute(LOADS, {"job": job})).all()
    return Work(
        model_loads=len(loads),
        model_calls=sum(stages[role].executed for role in MODEL_ROLES if role in stages),
        calls_made={role: stage.made for role, stage in stages.items()},
        calls_reused={role: stage.reused for role, stage in stages.items()},
        calls_lapsed=sum(row.lapsed for row in rows.values()),
        parse_failures=rows["judge"].unparsed if "judge" in rows else 0,
        stages=stages,
        residencies=await load_residencies(connection, sorted({row.epoch for row in loads})),
    )


# `uncounted` are replies of a server that does not count tokens. A failure without tokens never reached the model.
USED = select_over_calls("""
    SELECT m.name, COALESCE(sum(a.prompt_tokens), 0) AS prompt_tokens,
        COALESCE(sum(a.completion_tokens), 0) AS completion_tokens,
        COALESCE(sum(a.prompt_tokens) FILTER (WHERE mine.made), 0) AS prompt_made,
        COALESCE(sum(a.completion_tokens) FILTER (WHERE mine.made), 0) AS completion_made,
        sum(a.cached_tokens) FILTER (WHERE mine.made) AS cached_made,
        count(*) FILTER (WHERE mine.made) AS calls_made, count(a.prompt_tokens) FILTER (WHERE mine.made) AS counted,
        count(a.cached_tokens) FILTER (WHERE mine.made) AS reported,
        count(*) FILTER (WHERE a.outcome IN ('value', 'unparsed', 'truncated')
            AND (a.prompt_tokens IS NULL OR a.completion_tokens IS NULL)) AS uncounted
    FROM mine JOIN calls c ON c.id = mine.call_id JOIN models m ON m.id = c.model_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE c.role IN ('judge', 'write', 'generate') GROUP BY m.name ORDER BY m.name""")


class PromptTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens of the calls that this job made to one model."""

    sent: int | None
    """Number of prompt tokens sent, as counted by the model server; null if it counts none."""
    computed: int | None
    """Number of these that the model server computed, because they were not in its cache; null if it does not report
    for each call how many it took from its cache."""


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in US dollars at the currently configured prices; null if a model has no price or its server does not
    count tokens.
    """

    made: float | None
    """Cost of the calls that this job made."""
    all: float | None
    """Cost of the calls made and reused: the job's cost without reuse."""
    models: dict[str, float | None]
    """Cost of the calls made and reused, by model name."""


async def load_token_use(connection: AsyncConnection, job: int) -> Sequence[Row[Any]]:
    """Load the tokens of the job with this row id, one row per model that answered it."""
    return (await connection.execute(USED, {"job": job})).all()


def count_prompt_tokens(used: Sequence[Row[Any]]) -> dict[str, PromptTokens]:
    """Return the prompt tokens of the calls that the job made, by model."""
    return {
        row.name: PromptTokens(
            sent=row.prompt_made if row.counted else None,
            computed=row.prompt_made - row.cached_made if row.counted and row.reported == row.counted else None,
        )
        for row in used
        if row.calls_made
    }


def compute_cost(used: Sequence[Row[Any]], configured: Mapping[str, Model]) -> TokenCost | None:
    """Return the cost of a job's tokens; None if no model has answered."""
    if not used:
        return None
    counted = [row.name for row in used if not row.uncounted and row.name in configured]
    prices = {name: configured[name].price for name in counted}
    costs = {row.name: _compute_usd(prices.get(row.name), row.prompt_tokens, row.completion_tokens) for row in used}
    made = [_compute_usd(prices.get(row.name), row.prompt_made, row.completion_made) for row in used]
    return TokenCost(made=_sum(made), all=_sum(costs.values()), models=costs)


def _compute_usd(price: TokenPrice | None, prompt_tokens: int, completion_tokens: int) -> float | None:
    return None if price is None else price.of(prompt_tokens, completion_tokens)


def _sum(parts: Collection[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


PINNED = text("""
    SELECT j.pins, j.prepared, j.code -> 'imported' -> 'matched' AS matched, j.code -> 'measured' AS measured,
        encode(j.pipeline_hash, 'hex') AS pipeline_hash FROM jobs j WHERE j.id = :job""")
MODELS = text("SELECT id, name, backend, digest, version FROM models WHERE id = ANY(:ids)")


MATCHED = {
    "id": "id", "question": "question", "index": "index",
    "order": "their order, because neither id nor question is in the dataset,",
}  # fmt: skip
"""Words for the field that named the item of an imported answer."""


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a role."""

    name: str
    """Name of the model."""
    backend: str
    """Program that serves the model, such as `llama.cpp` or `ollama`."""
    digest: str | None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the figures depend on."""

    pipeline: str
    """Name of the pipeline."""
    pipeline_hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files."""
    dataset: str
    """Name of the dataset."""
    corpus: str | None
    """Name of the corpus; null if the job has none."""
    limit: int | None
    """Number of items used, from the start of the dataset; null for all."""
    repeats: int
    """Number of answers to each item."""
    reuse: str
    """`all`: replies of other jobs were reused; `none`: every reply was computed again."""
    params: Params | None
    """Parameters; null if this release cannot read them (a note says why)."""
    models: dict[str, PinnedModel]
    """Models by role."""
    drawn: list[str] | None
    """Roles whose calls every repeat makes again; for the other roles one reply serves all repeats. Null if it cannot
    be determined."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report."""

    id: uuid.UUID
    """Id of the job."""
    name: str
    """Name of the job."""
    state: str
    """State of the job."""
    reason: str | None
    """Why the job failed; null if it did not."""
    seconds: float | None
    """Seconds from submission to end; null while the job runs."""
    created_at: datetime
    """Time of submission."""
    ended_at: datetime | None
    """Time of the end; null while the job runs."""
    request_counts: jobs.RequestCounts
    """Samples by state."""
    items: int
    """Number of items with a completed or failed sample."""
    grader: str
    """Grader that decided whether an answer is correct. All accuracies use it."""
    accuracy: Accuracy
    """Accuracy by the job's grader."""
    score: Score | None
    """Mean score of the grader; null if it gives only verdicts."""
    bootstrap: Interval | None
    """Mean over items with its 95 % percentile interval, resampled by item; null if nothing was graded."""
    repeats: Repeats
    """Accuracy by repeat."""
    strict: Accuracy
    """Accuracy by Hendrycks' rules; for graders other than the mathematical one, the share of exact matches."""
    disagreements: int
    """Number of samples on which the two graders disagree."""
    answer_at: dict[str, AnswerAt]
    """Share by measure, such as `answer@5` (an answer occurs in the first 5 candidates); empty if not measured."""
    differing: list[Disagreement]
    """The first samples on which the two graders disagree."""
    endings: dict[str, int]
    """Number of completed and failed samples by ending (docs/explanation/statistics.md)."""
    metrics: dict[str, MetricFigures]
    """Scores of the job's metrics (docs/how-to/metrics.md); empty if it has none."""
    sufficiency: dict[str, dict[str, int]]
    """Number of answers by whether the documents were `sufficient` or `insufficient`, and within it by ending:
    `correct`, `wrong`, `declined` or `ungraded`. Empty without the metric `context_sufficiency`."""
    contamination: Contamination | None
    """Near-duplicates of questions in the corpus; null if no search found one."""
    extraction: dict[str, int]
    """Number of completed samples by whether their answer was found."""
    extracted_by: dict[str, int]
    """Number of answers by the rule that found them in the reply (docs/how-to/graders.md)."""
    theirs: TheirScores | None
    """Verdicts of the evaluation that an import came from; null if it had none."""
    failures: dict[str, int]
    """Number of failed samples by kind."""
    grading_failures: dict[str, int]
    """Number of answers that could not be graded, by the kind of failure."""
    truncated: int
    """Number of answers that were cut off."""
    truncated_by: dict[str, int]
    """Number of truncated answers by cause: the token limit (`length`), or the model server."""
    unscored: int
    """Number of samples for which scoring was requested and no candidate has a score."""
    duplicates_dropped: int
    """Number of near-duplicates of questions that searches left out, over all samples."""
    refused: int
    """Number of questions that the pipeline refused to answer because no document was relevant enough."""
    decisions: dict[str, dict[str, int]]
    """Number of decisions of the method, by stage and action. An action counts each time it was taken."""
    fallbacks: dict[str, dict[str, int]]
    """Number of fallbacks, by stage and the kind of failure that caused them."""
    guided: Guided | None
    """How rules guided the questions (docs/how-to/knowledge-graphs.md#rulerag); null if no sample looked for rules."""
    retrieval: Retrieval | None
    """Quality of retrieval; null if the dataset names no relevant documents or nothing was searched."""
    parse_failures: int
    """Number of judge replies without a rating or label, among all calls of the job."""
    repeatability: Repeatability | None
    """Repeatability of ratings; null if no document was rated twice (`gate.repeats`, or repeats with `judge.per_repeat`
    or `reuse: none`)."""
    gate: GateDecision | None
    """Decision of the confidence gate; null if the job has none."""
    model_loads: int
    """Number of loads of the models that answered calls made by this job: one for each epoch, and those in which a
    shared server loaded a model again."""
    model_calls: int
    """Number of executed judge, rerank, write and generate calls made by this job."""
    calls_made: dict[str, int]
    """Calls made by this job, by role."""
    calls_reused: dict[str, int]
    """Calls by role whose replies another job had already computed."""
    calls_lapsed: int
    """Number of calls made by this job whose worker, guard or model server was lost at least once. They may have run
    twice, and a lapsed call runs again alone (docs/how-to/operations.md, "The same answer")."""
    stages: dict[str, Stage]
    """Calls and times by role."""
    prompt_tokens: dict[str, PromptTokens]
    """Prompt tokens of this job's own calls by model: sent, and computed because the server did not have them in its
    cache. Calls that failed or were repeated are not counted."""
    cost: TokenCost | None
    """Cost of the model calls; null if no model has answered."""
    residencies: tuple[Residency, ...]
    """Models that the devices held while the calls ran."""
    by_level: dict[str, Accuracy]
    """Accuracy by level of the items."""
    by_subject: dict[str, Accuracy]
    """Accuracy by subject of the items."""
    notes: list[str]
    """Remarks on the figures."""
    settings: Settings
    """Settings that the figures depend on."""


class _Counts:
    """The counters that every sample passes through."""

    def __init__(self) -> None:
        self.tally, self.findings, self.scores, self.guiding = SampleTally(), Findings(), Scores(), Guiding()
        self.endings, self.contaminated, self.disagreements = Endings(), Contaminated(), Disagreements()
        self.answers, self.metrics = AnswersFound(), Metrics()

    async def add_all(self, database: Database, job: int, *, has_gold: bool) -> None:
        """Count every sample of a job."""
        async for batch in stream_with_outcomes(database, job):
            for part in (
                self.tally, self.endings, self.contaminated, self.disagreements, self.scores, self.guiding,
                self.answers, self.metrics,
            ):  # fmt: skip
                part.add(batch)
            if has_gold:
                relevant = await load_gold_documents(database, job, batch[0][0].index, batch[-1][0].index)
                await to_thread.run_sync(self.findings.add, batch, relevant)

    def figures(self, grader: str) -> dict[str, Any]:
        """Return the figures of a report, by field. The first call takes a second, because the intervals import
        scipy.
        """
        return {
            "retrieval": self.findings.figures(),
            "endings": self.endings.counts(),
            "contamination": self.contaminated.figures(),
            "guided": self.guiding.figures(),
            "score": self.scores.figures(grader),
            "answer_at": self.answers.figures(),
            "differing": self.disagreements.first,
            "metrics": self.metrics.figures(),
            "sufficiency": self.metrics.sufficiency(),
            **msgspec.structs.asdict(self.tally.figures()),
        }


async def report_on_job(database: Database, reference: str, configured: Mapping[str, Model]) -> Report:
    """Return the report of the job that `reference` names, at the currently configured prices."""
    async with database.snapshot() as connection:
        row = await jobs.resolve(connection, reference)
        job = (await jobs.load_without_stages(connection, [row]))[row]
        pinned = (await connection.execute(PINNED, {"job": row})).one()
        pins = sorted(msgspec.convert(pinned.pins, dict[str, Pin]).items())
        ids = sorted({pin.model_id for _, pin in pins})
        models = {
            each.id: PinnedModel(name=each.name, backend=each.backend, digest=each.digest, version=each.version)
            for each in await connection.execute(MODELS, {"ids": ids})
        }
        async with show_archived(connection, row, texts=rates_repeatedly(job)):
            work = await count_work(connection, row)
            used = await load_token_use(connection, row)
            repeatability = await load_repeatability(connection, row, job)
        has_gold = await has_gold_documents(connection, row)
        warnings = await list_demonstration_warnings(connection, [row])
    counts = _Counts()
    await counts.add_all(database, row, has_gold=has_gold)
    grader = (job.params.grading.grader if job.params else "") or "math"
    settings = Settings(
        pipeline=job.pipeline,
        pipeline_hash=pinned.pipeline_hash,
        dataset=job.dataset,
        corpus=job.corpus,
        limit=job.limit,
        repeats=job.repeats,
        reuse=job.reuse,
        params=job.params,
        models={role: models[pin.model_id] for role, pin in pins},
        drawn=await to_thread.run_sync(find_drawn_roles, job.pipeline, job.params, job.reuse),
    )
    figures = await to_thread.run_sync(counts.figures, grader)
    warnings += list_metric_warnings(figures["metrics"], grader, dict(pins))
    return Report(
        seconds=(job.ended_at - job.created_at).total_seconds() if job.ended_at else None,
        gate=try_decode(pinned.prepared, GateDecision, "")[0],
        grader=grader,
        prompt_tokens=count_prompt_tokens(used),
        cost=compute_cost(used, configured),
        repeatability=repeatability,
        notes=[
            *warnings,
            *describe_origin(pinned.matched, pinned.measured),
            *notes(job, counts.tally.count_failures_as_wrong()),
        ],
        settings=settings,
        id=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        created_at=job.created_at,
        ended_at=job.ended_at,
        request_counts=job.request_counts,
        **figures,
        **msgspec.structs.asdict(work),
    )


def describe_origin(matched: Mapping[str, int] | None, measured: Mapping[str, Any] | None) -> list[str]:
    """Return where the answers come from, if the job did not make them.

    `matched` counts imported answers by what named their item; `measured` is the job whose answers are measured.
    """
    texts = []
    if matched:
        by = "; ".join(f"{MATCHED[what]} {count}" for what, count in sorted(matched.items()))
        texts.append(f"the imported answers were matched with their items by: {by}")
    if measured:
        of = f"job {measured['name']} ({measured['job']}) of {measured['pipeline']}"
        texts.append(f"these are the answers of {of}, whose last record is {measured['chain']}")
        if left_out := measured["left_out"]:
            samples = format_count(left_out, "sample of that job failed and is", "samples of that job failed and are")
            texts.append(f"{samples} left out")
    return texts


def notes(job: jobs.Job, failed_as_wrong: Accuracy) -> list[str]:
    """Return warnings about the figures.

    `failed_as_wrong` is the accuracy with every failed sample as a wrong answer.
    """
    counts = job.request_counts
    texts = [job.unreadable] if job.unreadable else []
    if job.limit is not None:
        texts.append(f"only the first {job.limit} items of {job.dataset} were used (`limit`)")
    if job.repeats > 1 and job.params is not None:
        texts.append(describe_spread(job.pipeline, job.params, job.reuse))
    if not job.ended:
        texts.append(f"not final: {format_count(counts.in_progress, 'sample is', 'samples are')} still in progress")
    if job.state == "failed":
        texts.append("the job failed before its samples existed; see `reason`")
    elif counts.failed:
        share = format_accuracy(msgspec.to_builtins(failed_as_wrong))
        left_out = f"{counts.failed} failed samples are left out of the accuracy"
        texts.append(f"{left_out}; counted as wrong they would make it {share}")
    return texts
