"""Submit jobs over answers that exist: those of another system, and those of an ended job, which are measured later."""

import hashlib
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import Row, RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound, Unreadable
from shared import canonical
from shared.calls import Request
from shared.ingest.answers import ImportedAnswer, ItemIndex
from shared.params import MetricsParams
from shared.pipelines.embedding import EMBEDDING
from shared.pipelines.measured import MEASURED
from shared.pipelines.mine_rules import MINE_RULES
from shared.pipelines.write_questions import WRITE_QUESTIONS
from shared.rag.grading import Extract
from shared.rag.self_rag import extract_answer
from shared.replies import Generated, Reply
from shared.runtime import lifecycle
from shared.runtime.parameters import check_metric_names
from shared.runtime.submit import ImportSummary, MeasuredJob, Submission, draft_and_insert
from shared.samples import Given, Outcome, Trace
from shared.settings import Settings
from shared.storage import corpora
from shared.storage.archive import show_archived
from shared.storage.database import (
    TERMINAL,
    Accepted,
    Database,
    KeyedRequest,
    copy,
    make_not_found,
    run_once,
    sql,
    try_decode,
    try_decode_params,
)
from shared.storage.provenance import find_answering_text, find_extractor
from shared.telemetry import traces

# Import the answers of another system: store them together with the `imported` job that grades them.
#
# Grading is ordinary: the job's samples request it when they run, and equal pairs of answer and gold are graded once.

SELECT_DATASET_ID = text("SELECT id FROM datasets WHERE name = :name")
ITEMS = text("SELECT custom_id, question FROM items WHERE dataset_id = :dataset ORDER BY ordinal")
COLUMNS = ("job", "ordinal", "repeat", "content")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The job, and how much of its dataset it covers."""

    job: uuid.UUID
    answers: int
    missing: int
    """Items of the dataset without an answer; the job covers the others."""
    matched: dict[str, int]
    """Number of answers by what named their item: "id", "question", "index" or "order"."""
    empty: list[int]
    """Lines of empty answers, which are wrong."""


class _ImportTotals:
    """Totals over the answers that were stored so far."""

    def __init__(self) -> None:
        self.answers = 0
        self.items: set[int] = set()
        self.lowest: int | None = None
        self.repeats = 0
        self.content = hashlib.sha256()
        self.contexts = 0
        self.matched: Counter[str] = Counter()
        self.empty: list[int] = []

    def add(self, each: ImportedAnswer, content: bytes) -> None:
        self.answers += 1
        self.items.add(each.ordinal)
        self.contexts += each.given.contexts is not None
        self.matched[each.matched_by] += 1
        if each.is_empty:
            self.empty.append(each.line)
        self.lowest = each.repeat if self.lowest is None else min(self.lowest, each.repeat)
        self.repeats = max(self.repeats, each.repeat + 1)
        self.content.update(canonical.digest([each.ordinal, each.repeat]) + hashlib.sha256(content).digest())


async def load_items(database: Database, dataset: str) -> ItemIndex:
    """Load the dataset's items by their ids and questions, as the lines of a file name them.

    Raises:
        NotFound: the dataset does not exist.
    """
    async with database.transaction() as connection:
        number = (await connection.execute(SELECT_DATASET_ID, {"name": dataset})).scalar()
        if number is None:
            raise await make_not_found(connection, "dataset", dataset)
        rows = (await connection.execute(ITEMS, {"dataset": number})).all()
    return ItemIndex((row.custom_id, row.question) for row in rows)


async def submit_imported(
    database: Database,
    settings: Settings,
    submission: Submission,
    items: ItemIndex,
    batches: AsyncIterator[list[ImportedAnswer]],
) -> Submitted:
    """Store the answers with their documents, and insert the job that grades them, in one transaction.

    Raises:
        Conflict: a job has this name already.
        Invalid: answers are missing, or the repeats do not start at 0.
        InvalidLine: from `batches`.
        TooLarge, TooMany: more than the operator allows.
    """
    job, tally = uuid.uuid4(), _ImportTotals()
    async with database.transaction() as connection:
        await lifecycle.reserve(connection, [submission.name])
        async for batch in batches:
            await _store_answers(connection, job, batch, tally)
        if not tally.answers:
            raise Invalid(
                "the upload holds no answers",
                hint="send one line for each answer; skipped lines do not count as answers",
            )
        if tally.lowest:
            hint = f"add {tally.lowest} to `first_repeat`: the number that the first repeat has in the file"
            raise Invalid(f"the lowest repeat is {tally.lowest}, and repeats are counted from 0", hint=hint)
        missing = items.count - len(tally.items)
        imported = ImportSummary(
            answers=tally.answers,
            missing=missing,
            contexts=tally.contexts,
            matched=dict(tally.matched),
            hash=tally.content.hexdigest(),
        )
        submission = replace(submission, repeats=tally.repeats, job=job, imported=imported)
        await draft_and_insert(connection, settings, [submission])
    return Submitted(job=job, answers=tally.answers, missing=missing, matched=dict(tally.matched), empty=tally.empty)


async def _store_answers(
    connection: AsyncConnection, job: uuid.UUID, batch: Sequence[ImportedAnswer], tally: _ImportTotals
) -> None:
    documents = {
        bytes.fromhex(hash_): document
        for each in batch
        for hash_, document in zip(each.given.contexts or (), each.documents, strict=True)
    }
    if documents:
        # Held to the end, so that no purge takes documents away that the job is about to need.
        await connection.execute(corpora.LOCK)
        await corpora.store_documents(connection, documents)
    rows = []
    for each in batch:
        content = canonical.encode(each.given)
        tally.add(each, content)
        rows.append((job, each.ordinal, each.repeat, content))
    await copy(connection, "given", COLUMNS, rows)


# Measure an ended job later: copy its answers into a new job of `measured`, and grade and measure them there.
#
# Grades are reused, because calls are content-addressed. The copy is complete, so the ended job may be purged.

MEASURED_AT_ONCE = 500
"""Samples that are copied together."""
# The lock keeps the job, and so its corpus and its documents, until its answers are copied.
SOURCE = text("""
    SELECT j.id, j.public_id::text AS job, j.name, j.pipeline, d.name AS dataset, k.name AS corpus, j.repeats,
        j.params, j.state, encode(j.chain, 'hex') AS chain, j.total, CAST(j.code ->> 'limit' AS integer) AS items,
        COALESCE(j.code -> 'measured' ->> 'pipeline', j.pipeline) AS answered_by
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    WHERE j.public_id = :job FOR KEY SHARE OF j""")
COMPLETED = sql("""
    SELECT s.id, s.ordinal, s.repeat, o.outcome, g.content AS given
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN given g ON {GIVEN_TO_SAMPLE} AND j.pipeline IN ('imported', 'measured')
    WHERE s.job_id = :job AND s.kind = 'item' AND s.state = {COMPLETED}
        AND (s.ordinal, s.repeat) > (:ordinal, :repeat)
    ORDER BY s.ordinal, s.repeat LIMIT :n""")
# The text of a step with several draws is that of the first draw with the answer, so it comes last.
CALLS = sql("""
    SELECT t.sample_id, c.role, CASE c.role WHEN 'generate' THEN a.reply END AS reply,
        CASE c.role WHEN 'generate' THEN c.request END AS request
    FROM steps t JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE t.sample_id = ANY(:samples) AND c.role IN ('retrieve', 'generate')
    ORDER BY t.sample_id, t.position, t.slot DESC""")
SAMPLES = text("SELECT count(*) FROM samples WHERE job_id = :job AND kind = 'item'")
WITHOUT_ANSWERS = (EMBEDDING, MINE_RULES, WRITE_QUESTIONS)
SELF_RAG = "self-rag"
"""Its texts have reflection tokens, which are not part of the reply."""
NAMED = lifecycle.LONGEST - len("-measured")
"""Characters of the ended job's name that the new one keeps."""
REPLY: Any = Reply
_log = logging.getLogger(__name__)


class MeasureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of an ended job."""

    metrics: MetricsParams
    given: frozenset[str] = frozenset()
    """Paths of the parameters that were set, such as `metrics.names`."""
    name: str | None = None
    """Name of the new job; None makes one of the ended job's name."""
    models: Mapping[str, str] = {}
    """Models by role; only `judge` is asked."""
    configuration: int | None = None
    """Version of the configuration that filled in missing parameters."""
    submitted_by: str | None = None


async def submit_measured(
    database: Database, settings: Settings, source: uuid.UUID, request: MeasureRequest, keyed: KeyedRequest | None
) -> Accepted:
    """Copy the answers of an ended job, and insert the job that measures them, in one transaction.

    Raises:
        NotFound: no such job.
        Conflict: it has not completed, it has no answers, or a job has the new name already.
        Unreadable: this release cannot read its parameters or its outcomes.
        Invalid: the metric does not exist, or the job lacks data that it reads.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `run_once` and `lifecycle.reserve`.
    """

    async def make() -> uuid.UUID:
        submission = await _copy_answers(connection, source, request)
        return (await draft_and_insert(connection, settings, [submission]))[0]

    async with database.transaction() as connection:
        accepted = await run_once(connection, keyed, make)
    if not accepted.replayed:
        traces.link(traces.make_job_ref(accepted.job))
        _log.info("job accepted", extra={"job_id": str(accepted.job), "pipeline": MEASURED})
    return accepted


async def _copy_answers(connection: AsyncConnection, source: uuid.UUID, request: MeasureRequest) -> Submission:
    row = await _find_measurable(connection, source)
    if not request.metrics.names:
        raise Invalid(
            "`params.metrics.names`: at least one metric is needed", hint="name a metric, such as faithfulness"
        )
    check_metric_names(request.metrics)
    params, problem = try_decode_params(row["params"], f"the parameters of job {row['job']}")
    if params is None:
        raise Unreadable(str(problem), hint="measure it with the release that ran it")
    name = request.name or await lifecycle.reserve_next(connection, f"{row['name'][:NAMED]}-measured", ())
    await lifecycle.reserve(connection, [name])
    job = uuid.uuid4()
    copied = await _copy_samples(connection, row, job, find_extractor(params))
    return Submission(
        name=name, dataset=row["dataset"], corpus=row["corpus"], pipeline=MEASURED, limit=row["items"],
        repeats=row["repeats"], params=replace(params, metrics=request.metrics), given=request.given,
        configuration=request.configuration, models=request.models, submitted_by=request.submitted_by,
        job=job, measured=copied,
    )  # fmt: skip


async def _find_measurable(connection: AsyncConnection, source: uuid.UUID) -> RowMapping:
    row = (await connection.execute(SOURCE, {"job": source})).mappings().first()
    if row is None:
        raise NotFound(f"no job {source}", hint="mathrag job list")
    if row["pipeline"] in WITHOUT_ANSWERS:
        raise Conflict(f"job {row['name']} has no answers to measure", hint="choose a job that answers questions")
    if row["state"] not in TERMINAL:
        problem = f"job {row['name']} is {row['state']}, so it cannot be measured yet"
        raise Conflict(problem, hint="wait for its end: mathrag job watch")
    if row["state"] != "completed":
        problem = f"job {row['name']} is {row['state']}, and only a completed job can be measured"
        raise Conflict(problem, hint="mathrag job requeue submits it again")
    return row


async def _copy_samples(connection: AsyncConnection, row: RowMapping, job: uuid.UUID, extract: Extract) -> MeasuredJob:
    """Copy the completed samples of the job in `row` for the new job."""
    answers, contexts, after = 0, 0, (-1, -1)
    while rows := await _load_completed(connection, row["id"], after):
        calls: defaultdict[int, list[Row[Any]]] = defaultdict(list)
        ids = [each["id"] for each in rows]
        async with show_archived(connection, row["id"], ids):
            for call in await connection.execute(CALLS, {"samples": ids}):
                calls[call.sample_id].append(call)
        given = await to_thread.run_sync(_make_given, row["pipeline"], rows, calls, extract)
        await copy(connection, "given", COLUMNS, [
            (job, each["ordinal"], each["repeat"], canonical.encode(answer))
            for each, answer in zip(rows, given, strict=True)
        ])  # fmt: skip
        answers += len(rows)
        contexts += sum(each.contexts is not None for each in given)
        after = rows[-1]["ordinal"], rows[-1]["repeat"]
    if (await connection.execute(SAMPLES, {"job": row["id"]})).scalar() != row["total"]:
        raise Conflict(f"job {row['name']} is being purged", hint="mathrag job list")
    if not answers:
        raise Conflict(f"job {row['name']} has no answers to measure: all its samples failed", hint="requeue it first")
    return MeasuredJob(
        job=row["job"], name=row["name"], pipeline=row["answered_by"], chain=row["chain"], answers=answers,
        contexts=contexts, left_out=row["total"] - answers,
    )  # fmt: skip


async def _load_completed(connection: AsyncConnection, job: int, after: tuple[int, int]) -> Sequence[RowMapping]:
    values = {"job": job, "ordinal": after[0], "repeat": after[1], "n": MEASURED_AT_ONCE}
    return (await connection.execute(COMPLETED, values)).mappings().all()


def _make_given(
    pipeline: str, rows: Sequence[RowMapping], calls: Mapping[int, Sequence[Row[Any]]], extract: Extract
) -> list[Given]:
    """Return what to store for each completed sample.

    Raises:
        Unreadable: this release cannot read an outcome.
    """
    found = []
    for row in rows:
        outcome, problem = try_decode(row["outcome"], Outcome, f"the outcome of item {row['ordinal']}")
        if outcome is None:
            raise Unreadable(str(problem), hint="measure the job with the release that ran it")
        kept = replace(
            outcome, context=(), trace=Trace(), verdict=None, grading_failure=None, metrics=msgspec.UNSET,
            controls=msgspec.UNSET,
        )  # fmt: skip
        given, problem = try_decode(row["given"], Given, f"the answer to item {row['ordinal']}")
        if problem is not None:
            raise Unreadable(problem, hint="measure the job with the release that ran it")
        if given is not None:
            found.append(replace(given, outcome=kept))
            continue
        made = calls.get(row["id"], ())
        texts, passages = _read_texts(made)
        if pipeline == SELF_RAG:
            texts = [extract_answer(each) for each in texts]
        text = "" if outcome.refusal is not None else find_answering_text(texts, outcome, extract)
        searched = bool(outcome.context) or any(call.role == "retrieve" for call in made)
        found.append(
            Given(
                text=text,
                answer=outcome.answer,
                contexts=outcome.context if searched else None,
                passage=passages.get(text or "", ""),
                outcome=kept,
            )
        )
    return found


def _read_texts(calls: Sequence[Row[Any]]) -> tuple[list[str], dict[str, str]]:
    """Return the generator's texts in order, and by text the passage that its prompt had in place of documents."""
    texts: list[str] = []
    passages: dict[str, str] = {}
    for call in calls:
        reply = try_decode(call.reply, REPLY, "")[0]
        if call.role != "generate" or not isinstance(reply, Generated):
            continue
        texts.append(reply.text)
        request = try_decode(call.request, Request, "")[0]
        shown = request.values.get("context") if request is not None else None
        if isinstance(shown, str) and shown:
            passages[reply.text] = shown
    return texts, passages
