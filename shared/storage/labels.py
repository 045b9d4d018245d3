"""Label sets: how they are drawn, their tasks, and the labels that people give."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, NotFound
from shared import canonical
from shared.calls import Expected, Request
from shared.samples import Outcome
from shared.shapes import KINDS, Content, SourceDocument, Value, What, parse_label
from shared.storage import jobs
from shared.storage.archive import show_archived
from shared.storage.database import (
    LARGEST_KEY,
    Database,
    Page,
    check_name,
    copy,
    cursor_scope,
    decode_cursor,
    make_not_found,
    make_page,
    sql,
)

# Draw the tasks of a label set from a job's judged documents, graded answers or metrics, each at most once.

NUL = {"nul": "\\u0000", "instead": "\\ufffd"}
"""A NUL in JSON and its replacement: a model may write one, and PostgreSQL's JSON functions refuse it."""
# Takes the smallest hashes of seed and content, so that equal seeds draw equal tasks from a job. Metrics rate documents
# after the answer was written, some of them for other questions on purpose: these ratings are left out.
DOCUMENTS = sql("""
    WITH judged AS (
        SELECT s.kind, s.ordinal, s.repeat, t.position, t.slot,
            CAST(replace(convert_from(c.request, 'UTF8'), :nul, :instead) AS json) AS asked,
            CAST(replace(convert_from(a.reply, 'UTF8'), :nul, :instead) AS json) AS reply
        FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
        JOIN attempts a ON {ACCEPTED_FOR} c.id WHERE s.job_id = :job AND c.role = 'judge'
            AND t.position < COALESCE((
                SELECT max(w.position) FROM steps w JOIN calls g ON g.id = w.call_id AND g.role = 'generate'
                WHERE w.sample_id = s.id), t.position + 1)
            AND NOT EXISTS (SELECT FROM jobs g WHERE g.id = :job AND g.pipeline IN ('imported', 'measured'))),
    rated AS (
        SELECT *, asked -> 'values' -> 'document' ->> 'doc' AS document,
            CASE WHEN :by_question THEN asked -> 'values' ->> 'question' ELSE '' END AS question
        FROM judged
        WHERE split_part(asked ->> 'template', '@', 1) = ANY(:rubrics) AND reply ->> 'type' = 'rated'),
    firsts AS (
        SELECT DISTINCT ON (document, question) * FROM rated WHERE document IS NOT NULL
        ORDER BY document, question, COALESCE(CAST(asked ->> 'draw' AS integer), 0), kind, ordinal, repeat, position,
            slot)
    SELECT CASE WHEN f.kind = 'item' THEN f.ordinal END AS item, f.repeat,
        COALESCE(NULLIF(f.question, ''), i.question, '') AS question, f.document, d.problem, d.body AS text,
        f.reply ->> 'rating' AS system, count(*) OVER () AS eligible
    FROM firsts f JOIN documents d ON d.hash = decode(f.document, 'hex') JOIN jobs j ON j.id = :job
    LEFT JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = f.ordinal AND f.kind = 'item'
    ORDER BY sha256(convert_to(concat_ws(' ', CAST(:seed AS text), f.document, f.question), 'UTF8')), f.document
    LIMIT :size""")
ANSWERS = sql("""
    WITH firsts AS (
        SELECT DISTINCT ON (s.ordinal, o.answer) s.ordinal, s.repeat, o.answer, o.correct
        FROM samples s JOIN outcomes o ON o.sample_id = s.id
        WHERE s.job_id = :job AND s.kind = 'item' AND o.correct IS NOT NULL AND o.answer IS NOT NULL
        ORDER BY s.ordinal, o.answer, s.repeat)
    SELECT s.ordinal AS item, s.repeat, i.question, i.gold, i.expected, s.answer,
        CASE WHEN s.correct THEN 'right' ELSE 'wrong' END AS system, count(*) OVER () AS eligible
    FROM firsts s JOIN jobs j ON j.id = :job JOIN items i ON {ASKED_BY_SAMPLE}
    ORDER BY sha256(convert_to(concat_ws(' ', CAST(:seed AS text), s.ordinal, s.answer), 'UTF8')), s.ordinal
    LIMIT :size""")

SCORED = """
    WITH scored AS MATERIALIZED (
        SELECT s.id, s.ordinal, s.repeat,
            CAST(replace(convert_from(o.outcome, 'UTF8'), :nul, :instead) AS json) -> 'metrics' -> :metric AS score
        FROM samples s JOIN outcomes o ON o.sample_id = s.id WHERE s.job_id = :job AND s.kind = 'item'),
    measured AS (
        SELECT *, CAST(score ->> 'value' AS double precision) AS value,
            score -> 'parts' -> 0 ->> 'label' IS NOT NULL AS judged
        FROM scored WHERE score ->> 'value' IS NOT NULL)"""
"""The answers with a score, and whether it was computed from labels of the judge."""
# A question is drawn with all sentences of its first reply that has a score from the judge's labels. Controls are no
# part of a score. The first row is returned even if its reply has too many sentences.
QUESTIONS = sql(f"""{SCORED},
    firsts AS (
        SELECT DISTINCT ON (ordinal) *, json_array_length(score -> 'parts') AS units FROM measured WHERE judged
        ORDER BY ordinal, repeat),
    placed AS (
        SELECT *, sha256(convert_to(concat_ws(' ', CAST(:seed AS text), ordinal), 'UTF8')) AS place FROM firsts),
    counted AS (
        SELECT *, sum(units) OVER (ORDER BY place, ordinal) AS so_far, sum(units) OVER () AS eligible FROM placed)
    SELECT s.id, s.ordinal AS item, s.repeat, o.outcome, s.units, s.eligible, i.question, i.gold, i.expected
    FROM counted s JOIN outcomes o ON o.sample_id = s.id JOIN jobs j ON j.id = :job JOIN items i ON {{ASKED_BY_SAMPLE}}
    WHERE s.so_far <= :size OR s.so_far = s.units ORDER BY s.place, s.ordinal""")  # noqa: S608 - a constant
JUDGED_CALLS = text("""
    SELECT t.sample_id, c.request FROM steps t JOIN calls c ON c.id = t.call_id
    WHERE t.sample_id = ANY(:samples) AND c.role = 'judge' ORDER BY t.sample_id, t.position, t.slot""")
SOURCES = text("""
    SELECT encode(hash, 'hex') AS document, problem, body AS text FROM documents
    WHERE hash IN (SELECT decode(unnest(CAST(:hashes AS text[])), 'hex'))""")
END_OF_SOURCE = "\n\n"
"""Text after one that replaces the documents."""


class DrawnTask(NamedTuple):
    """A drawn task."""

    item: int | None
    """None for a document of the gate's calibration."""
    repeat: int
    content: Content
    system: Value
    """The verdict of the judge or the grader."""


async def draw_tasks(
    connection: AsyncConnection, job: int, what: What, size: int, seed: int
) -> tuple[list[DrawnTask], int]:
    """Draw at most `size` tasks of a job (row id); return them in drawing order, and how many are eligible.

    If a document was rated several times or an answer given several times, the first one counts. What metrics judged
    is drawn by question: all sentences of a reply, or none.

    Raises:
        Conflict: the first reply has more than `size` sentences.
    """
    kind = KINDS[what]
    values: dict[str, Any] = {"job": job, "size": size, "seed": str(seed)}
    if kind.metric:
        return await _draw_questions(connection, what, {**values, "metric": kind.metric, **NUL})
    if kind.rubrics:
        values |= {"rubrics": list(kind.rubrics), "by_question": kind.by_question, **NUL}
    rows = (await connection.execute(DOCUMENTS if kind.rubrics else ANSWERS, values)).mappings().all()
    drawn = [
        DrawnTask(row["item"], row["repeat"], _make_content(row), parse_label(what, row["system"])) for row in rows
    ]
    return drawn, rows[0]["eligible"] if rows else 0


def _make_content(row: RowMapping) -> Content:
    if "document" in row:
        return Content(**{name: row[name] for name in ("question", "document", "problem", "text")})
    expected = msgspec.convert(row["expected"] or {}, Expected)
    golds = _list_golds(row["gold"], expected)
    return Content(question=row["question"], golds=golds, choices=expected.choices, answer=row["answer"])


def _list_golds(gold: str | None, expected: Expected) -> tuple[str, ...]:
    return (*(() if gold is None else (gold,)), *expected.golds)


async def _draw_questions(
    connection: AsyncConnection, what: What, values: dict[str, Any]
) -> tuple[list[DrawnTask], int]:
    rows = (await connection.execute(QUESTIONS, values)).mappings().all()
    if not rows:
        return [], 0
    if rows[0]["units"] > values["size"]:
        raise Conflict(
            f"the first reply has {rows[0]['units']} sentences, more than the size of the set",
            hint="choose a larger size: all sentences of a reply are drawn together",
        )
    asked: dict[int, list[Request]] = {row["id"]: [] for row in rows}
    for sample, request in await connection.execute(JUDGED_CALLS, {"samples": list(asked)}):
        asked[sample].append(msgspec.json.decode(request, type=Request))
    outcomes = {row["id"]: msgspec.json.decode(row["outcome"], type=Outcome) for row in rows}
    hashes = sorted({document for outcome in outcomes.values() for document in outcome.context})
    found = (await connection.execute(SOURCES, {"hashes": hashes})).mappings()
    documents = {each["document"]: SourceDocument(**each) for each in found}
    drawn = []
    for row in rows:
        outcome = outcomes[row["id"]]
        shown = tuple(documents[each] for each in outcome.context)
        parts = (outcome.metrics or {})[KINDS[what].metric].parts
        contents = _make_contents(what, row, shown, [part.text for part in parts], asked[row["id"]])
        drawn += [
            DrawnTask(row["item"], row["repeat"], content, parse_label(what, str(part.label)))
            for content, part in zip(contents, parts, strict=True)
        ]
    return drawn, int(rows[0]["eligible"])


def _make_contents(
    what: What, row: RowMapping, documents: tuple[SourceDocument, ...], units: Sequence[str], asked: Sequence[Request]
) -> list[Content]:
    """Make the task of a question: the contents of its units, from the calls that asked the judge about them."""

    def list_values(kind: What) -> list[dict[str, Any]]:
        """Return the units that these calls asked about, without the controls that ask another item's question."""
        of = [each.values for each in asked if each.template.partition("@")[0] in KINDS[kind].rubrics]
        return [each for each in of if each["question"] == row["question"]]

    question = row["question"]
    # Faithfulness asks whether the reply declines to answer.
    reply = list_values("addresses")[0]["reply"] if what != "sufficient" else ""
    if what == "addresses":
        return [Content(question=question, answer=reply)]
    values = list_values(what)
    # The gold answer and the reply are sources of other metrics.
    golds = "\n".join(_list_golds(row["gold"], msgspec.convert(row["expected"] or {}, Expected)))
    passages = [
        each["documents"].removesuffix(END_OF_SOURCE)
        for each in values
        if isinstance(each["documents"], str) and each.get("sentence", units[0]) in units
    ]
    passage = next((each for each in passages if each not in (golds, reply)), "")
    source = Content(question=question, text=passage, documents=() if passage else documents)
    if what == "sufficient":
        return [source]
    # The text before a sentence: of equal ones in the order of the reply.
    before: dict[str, list[str]] = {}
    for each in values:
        before.setdefault(each["sentence"], []).append(each.get("before", "").strip())
    contents = []
    for unit in units:
        first, *later = before[unit]
        before[unit] = later or [first]
        contents.append(msgspec.structs.replace(source, sentence=unit, before=first))
    return contents


# Store label sets: named tasks drawn from the verdicts of a job's judge or grader. They never change.

COLUMNS = """
    SELECT s.id, s.name, s.what, s.job::text AS job, s.job_name, s.job_id IS NULL AS purged, s.seed, s.size, s.eligible,
        s.tasks, encode(s.hash, 'hex') AS hash, s.made_by, s.project, s.created_at
    FROM label_sets s"""
ONE = text(f"{COLUMNS} WHERE s.name = :name")
LIST = text(f"{COLUMNS} WHERE s.id < :before ORDER BY s.id DESC LIMIT :n")
SCOPE = cursor_scope("label sets")
PROGRESS = text("""
    WITH counted AS (
        SELECT DISTINCT ON (l.set_id, l.number, l.labeller) l.set_id, l.labeller, l.value, t.system
        FROM labels l JOIN label_tasks t ON t.set_id = l.set_id AND t.number = l.number
        WHERE l.set_id = ANY(:sets) ORDER BY l.set_id, l.number, l.labeller, l.id DESC)
    SELECT set_id, labeller, count(value) AS labels, count(*) FILTER (WHERE value IS NULL) AS abstained,
        count(*) FILTER (WHERE value = system) AS same
    FROM counted GROUP BY set_id, labeller ORDER BY set_id, labeller""")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag label sets'))")
JOB = text("SELECT public_id, name, state, ended_at FROM jobs WHERE id = :job FOR KEY SHARE")
INSERT_LABEL_SET = text("""
    INSERT INTO label_sets (name, what, job_id, job, job_name, seed, size, eligible, tasks, hash, made_by)
    VALUES (:name, :what, :job_id, :job, :job_name, :seed, :size, :eligible, :tasks, :hash, :made_by) RETURNING id""")
TASKS = ("set_id", "number", "item", "repeat", "content", "system")
JUDGED = "a mathrag-gate job has its documents' reasoning rated, a crag job their relevance"
NOTHING: dict[What, tuple[str, str]] = {
    "documents": ("its judge rated the reasoning of no document", JUDGED),
    "relevance": ("its judge rated the relevance of no document", JUDGED),
    "answers": ("none of its answers was graded", "give the dataset's items gold answers, and submit a job over them"),
    **{
        what: (f"its judge gave no label of the metric {kind.metric}", f"submit a job with --metric {kind.metric}")
        for what, kind in KINDS.items()
        if kind.metric
    },
}
"""By kind of set, why there is nothing to label, and what to do."""


class LabelSetDraft(NamedTuple):
    """The request for a label set."""

    name: str
    what: What
    job: str
    size: int
    seed: int


class Labeller(msgspec.Struct, frozen=True, kw_only=True):
    """A labeller's progress; the last label of each task counts."""

    labeller: str
    """Name of the labeller's API key, or `local` without keys."""
    labels: int = 0
    """Number of tasks with a label or an abstention."""
    abstained: int = 0
    """Number of abstentions."""
    same: int = 0
    """Number of labels that agree with the judge or the grader."""


class LabelSet(msgspec.Struct, frozen=True, kw_only=True):
    """A label set."""

    id: int
    """Number of the label set in the database."""
    name: str
    """Name of the label set."""
    what: What
    """What is labelled."""
    job: str
    """Id of the job from which the tasks were drawn."""
    job_name: str
    """Name of that job."""
    purged: bool
    """Whether the job was purged; the tasks keep their content."""
    seed: int
    """Seed of the draw."""
    size: int
    """Requested number of tasks."""
    eligible: int
    """Number of distinct documents, answers or sentences to draw from."""
    tasks: int
    """Number of tasks."""
    hash: str
    """SHA-256 of all tasks in order."""
    made_by: str
    """Name of the API key that created the set, or `local` without keys."""
    created_at: datetime
    """Time at which the set was created."""
    instructions: str
    """Instructions for labellers."""
    scale: tuple[Value, ...]
    """Values from worst to best."""
    labellers: tuple[Labeller, ...] = ()
    """Progress of each labeller."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""

    def of(self, labeller: str) -> Labeller:
        """Return this labeller's progress."""
        known = (each for each in self.labellers if each.labeller == labeller)
        return next(known, Labeller(labeller=labeller))


async def create(database: Database, wanted: LabelSetDraft, made_by: str) -> tuple[LabelSet, bool]:
    """Draw and store a label set, or return an identical existing one; also return whether it is new.

    Raises:
        NotFound, Conflict: no such job; it has not ended; it has nothing to label; or another set has the name.
        Invalid: the name cannot be used.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        known = await _find_set(connection, check_name(wanted.name))
        if known is not None:
            same = (known.what, known.size, known.seed) == (wanted.what, wanted.size, wanted.seed)
            if not same or wanted.job not in (known.job, known.job_name):
                raise Conflict(
                    f"label set {known.name!r} already exists, drawn from another job or with other options",
                    hint="choose another name",
                )
            return (await _with_labellers(connection, [known]))[0], False
        job_id = await jobs.resolve(connection, wanted.job)
        job = (await connection.execute(JOB, {"job": job_id})).one()
        if job.ended_at is None:
            hint = "wait until it has ended, or cancel it"
            raise Conflict(f"job {job.name!r} is still {job.state}; only an ended job can be labelled", hint=hint)
        async with show_archived(connection, job_id):
            drawn, eligible = await draw_tasks(connection, job_id, wanted.what, wanted.size, wanted.seed)
        if not drawn:
            why, hint = NOTHING[wanted.what]
            raise Conflict(f"job {job.name!r} has nothing to label: {why}", hint=hint)
        content = hashlib.sha256(canonical.encode(wanted.what))
        for each in drawn:
            content.update(canonical.encode(tuple(each)) + b"\n")
        values = {
            **wanted._asdict(), "job": job.public_id, "job_name": job.name, "job_id": job_id, "eligible": eligible,
            "tasks": len(drawn), "hash": content.digest(), "made_by": made_by,
        }  # fmt: skip
        number = (await connection.execute(INSERT_LABEL_SET, values)).scalar_one()
        rows = [
            (number, place, each.item, each.repeat, canonical.encode(each.content), str(each.system))
            for place, each in enumerate(drawn, start=1)
        ]
        await copy(connection, "label_tasks", TASKS, rows)
        return await get_set(connection, wanted.name), True


async def get_set(connection: AsyncConnection, name: str) -> LabelSet:
    """Get the label set called `name`, with its labellers.

    Raises:
        NotFound: it does not exist.
    """
    found = await _find_set(connection, name)
    if found is None:
        raise await make_not_found(connection, "label", name)
    return (await _with_labellers(connection, [found]))[0]


async def list_label_sets(database: Database, limit: int, cursor: str | None = None) -> Page[LabelSet]:
    """List label sets, newest first."""
    before = decode_cursor(cursor, SCOPE, 1)[0] if cursor else LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings().all()
        found = await _with_labellers(connection, [_make_set(row) for row in rows])
    return make_page(found, limit, SCOPE, *(each.id for each in found[:limit][-1:]))


async def _find_set(connection: AsyncConnection, name: str) -> LabelSet | None:
    row = (await connection.execute(ONE, {"name": name})).mappings().first()
    return None if row is None else _make_set(row)


def _make_set(row: RowMapping) -> LabelSet:
    kind = KINDS[row["what"]]
    return LabelSet(**row, instructions=kind.instructions, scale=kind.scale)


async def _with_labellers(connection: AsyncConnection, sets: Sequence[LabelSet]) -> list[LabelSet]:
    found: dict[int, list[Labeller]] = {each.id: [] for each in sets}
    for row in (await connection.execute(PROGRESS, {"sets": list(found)})).mappings():
        found[row["set_id"]].append(Labeller(**{name: row[name] for name in Labeller.__struct_fields__}))
    return [msgspec.structs.replace(each, labellers=tuple(found[each.id])) for each in sets]


# Store people's labels. Labels are only added; the last label of each labeller and task counts.

NUMBERED = text("""
    SELECT number, item, repeat, content, system FROM label_tasks WHERE set_id = :set AND number = :number""")
NEXT = text("""
    SELECT t.number, t.item, t.repeat, t.content, t.system FROM label_tasks t
    WHERE t.set_id = :set AND NOT EXISTS (
        SELECT 1 FROM labels l WHERE l.set_id = t.set_id AND l.number = t.number AND l.labeller = :labeller)
    ORDER BY t.number LIMIT 1""")
LAST = text("""
    SELECT number, labeller, at, blind, value, note FROM labels
    WHERE set_id = :set AND number = :number AND labeller = :labeller ORDER BY id DESC LIMIT 1""")
INSERT_LABEL = text("""
    INSERT INTO labels (set_id, number, labeller, blind, value, note)
    VALUES (:set, :number, :labeller, :blind, :value, :note) RETURNING number, labeller, at, blind, value, note""")
EXPORT = text("""
    SELECT l.id, l.number, l.labeller, l.at, l.blind, l.value, l.note, t.item, t.repeat, t.content, t.system,
        NOT EXISTS (
            SELECT 1 FROM labels n WHERE n.set_id = l.set_id AND n.number = l.number AND n.labeller = l.labeller
                AND n.id > l.id) AS counts
    FROM labels l JOIN label_tasks t ON t.set_id = l.set_id AND t.number = l.number
    WHERE l.set_id = :set AND l.id > :after ORDER BY l.id LIMIT :n""")
COUNTED = text("""
    SELECT DISTINCT ON (l.number, l.labeller) l.number, l.labeller, l.value
    FROM labels l WHERE l.set_id = :set AND (l.blind OR NOT :blind) ORDER BY l.number, l.labeller, l.id DESC""")
SYSTEM = text("SELECT number, item, repeat, system FROM label_tasks WHERE set_id = :set ORDER BY number")
JOB_OF_SET = text("SELECT job_id FROM label_sets WHERE id = :set")
# The sample that judged the first task, or all that prepared the gate, if one of these did. The lock keeps an archive
# from moving their calls meanwhile.
FIRST_SAMPLES_OF_SET = text("""
    SELECT s.job_id, s.id FROM label_sets l JOIN jobs j ON j.id = l.job_id
    JOIN (SELECT * FROM label_tasks WHERE set_id = :set ORDER BY number LIMIT 1) t ON t.set_id = l.id
    JOIN samples s ON s.job_id = j.id AND (s.kind = 'item' AND s.ordinal = t.item AND s.repeat = t.repeat
        OR s.kind <> 'item' AND t.item IS NULL)
    WHERE l.id = :set FOR KEY SHARE OF j""")
JUDGE_SCORES = sql(f"""{SCORED}
    SELECT ordinal AS item, avg(value) AS value, CAST(avg(CAST(judged AS integer)) AS double precision) AS judged
    FROM measured GROUP BY ordinal ORDER BY ordinal""")  # noqa: S608 - a constant
BATCH = 500
"""Labels read per transaction."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A stored label."""

    number: int
    """Number of the task, from 1."""
    labeller: str
    """Name of the labeller's API key, or `local` without keys."""
    at: datetime
    """Time at which the label was given."""
    blind: bool
    """Whether the labeller did not see the verdict of the judge or the grader."""
    value: Value | None
    """The value; null for an abstention."""
    abstained: bool
    """Whether the labeller could not decide."""
    note: str
    """Free text about the label."""


class ExportedLabel(Label, frozen=True, kw_only=True):
    """A label with its task, as one line of an export."""

    set: str
    """Name of the label set."""
    what: What
    """What is labelled."""
    item: int | None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    document: str | None
    """Hash of the labelled document; null if no document is labelled."""
    answer: str | None
    """The labelled answer or reply; null if none is labelled."""
    sentence: str | None
    """The labelled sentence of a reply; null if none is labelled."""
    system: Value
    """Verdict of the judge or the grader."""
    counts: bool
    """Whether it is the labeller's last label of the task, which counts."""


class LabelTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to label."""

    set: str
    """Name of the label set."""
    number: int
    """Number of the task, from 1."""
    item: int | None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    content: Content
    """What to label."""
    system: Value | None
    """Verdict of the judge or the grader; null in blind labelling."""
    label: Label | None
    """This labeller's last label of the task; null if there is none."""


class NewLabel(NamedTuple):
    """A label to add."""

    value: Value | None
    """None means that the labeller abstains."""
    blind: bool
    note: str


class CountedLabels(NamedTuple):
    """The labels of a set that count, and the system's verdicts."""

    labels: dict[int, dict[str, Value | None]]
    """Values by task and labeller; None for an abstention."""
    tasks: list["SystemRating"]


class JudgeScore(NamedTuple):
    """The score of a metric for a question: the mean over its repeats that were measured."""

    value: float
    judged: float
    """Share of these repeats whose score was computed from labels of the judge. A refusal is scored without it."""


class SystemRating(NamedTuple):
    """A task with the verdict of the judge or the grader."""

    number: int
    item: int | None
    repeat: int
    value: Value


async def find_next_task(connection: AsyncConnection, of: LabelSet, labeller: str, *, blind: bool) -> LabelTask | None:
    """Find the first task that this labeller has not labelled; None if it does not exist."""
    row = (await connection.execute(NEXT, {"set": of.id, "labeller": labeller})).mappings().first()
    return None if row is None else _make_task(of, row, None, blind=blind)


async def find_task(connection: AsyncConnection, of: LabelSet, number: int, labeller: str, *, blind: bool) -> LabelTask:
    """Find the task with this number.

    Raises:
        NotFound: it does not exist.
    """
    row = (await connection.execute(NUMBERED, {"set": of.id, "number": number})).mappings().first()
    if row is None:
        raise NotFound(f"label set {of.name!r} has no task {number}", hint=f"its tasks are 1 to {of.tasks}")
    values = {"set": of.id, "number": number, "labeller": labeller}
    last = (await connection.execute(LAST, values)).mappings().first()
    label = None if last is None else Label(**_read_label(of.what, last))
    return _make_task(of, row, label, blind=blind)


async def add_label(
    database: Database, of: LabelSet, number: int, labeller: str, given: NewLabel
) -> tuple[Label, bool]:
    """Add a label unless it equals the labeller's last one of the task; return the label and whether it was added.

    Raises:
        NotFound: no such task.
    """
    async with database.transaction() as connection:
        last = (await find_task(connection, of, number, labeller, blind=True)).label
        if last is not None and NewLabel(last.value, last.blind, last.note) == given:
            return last, False
        value = None if given.value is None else str(given.value)
        values = {**given._asdict(), "value": value, "set": of.id, "number": number, "labeller": labeller}
        row = (await connection.execute(INSERT_LABEL, values)).mappings().one()
        return Label(**_read_label(of.what, row)), True


async def stream_labels(database: Database, of: LabelSet) -> AsyncIterator[list[ExportedLabel]]:
    """Yield all labels of the set in the order in which they were given, one short transaction per batch."""
    after = 0
    while True:
        async with database.transaction() as connection:
            values = {"set": of.id, "after": after, "n": BATCH}
            rows = (await connection.execute(EXPORT, values)).mappings().all()
        if not rows:
            return
        yield [_make_exported_label(of, row) for row in rows]
        after = rows[-1]["id"]


async def count_labels(connection: AsyncConnection, of: LabelSet, *, blind: bool) -> CountedLabels:
    """Collect each labeller's last label of each task; with `blind`, only labels that were given blindly."""
    found: dict[int, dict[str, Value | None]] = {}
    for row in (await connection.execute(COUNTED, {"set": of.id, "blind": blind})).mappings():
        found.setdefault(row["number"], {})[row["labeller"]] = _parse_value(of.what, row["value"])
    tasks = [
        SystemRating(row.number, row.item, row.repeat, parse_label(of.what, row.system))
        for row in await connection.execute(SYSTEM, {"set": of.id})
    ]
    return CountedLabels(found, tasks)


async def load_judge_scores(connection: AsyncConnection, of: LabelSet) -> dict[int, JudgeScore] | None:
    """Load the scores of the metric for which the set's labels were given, by item; None if the job was purged."""
    job = (await connection.execute(JOB_OF_SET, {"set": of.id})).scalar_one()
    if job is None:
        return None
    rows = await connection.execute(JUDGE_SCORES, {"job": job, "metric": KINDS[of.what].metric, **NUL})
    return {row.item: JudgeScore(row.value, row.judged) for row in rows}


def _make_task(of: LabelSet, row: RowMapping, label: Label | None, *, blind: bool) -> LabelTask:
    return LabelTask(
        set=of.name,
        number=row["number"],
        item=row["item"],
        repeat=row["repeat"],
        content=msgspec.json.decode(row["content"], type=Content),
        system=None if blind else parse_label(of.what, row["system"]),
        label=label,
    )


def _read_label(what: What, row: RowMapping) -> dict[str, Any]:
    copied = {name: row[name] for name in ("number", "labeller", "at", "blind", "note")}
    return {**copied, "value": _parse_value(what, row["value"]), "abstained": row["value"] is None}


def _make_exported_label(of: LabelSet, row: RowMapping) -> ExportedLabel:
    content = msgspec.json.decode(row["content"], type=Content)
    return ExportedLabel(
        set=of.name,
        what=of.what,
        item=row["item"],
        repeat=row["repeat"],
        document=content.document or None,
        answer=content.answer if of.what in ("answers", "addresses") else None,
        sentence=content.sentence or None,
        system=parse_label(of.what, row["system"]),
        counts=row["counts"],
        **_read_label(of.what, row),
    )


def _parse_value(what: What, text: str | None) -> Value | None:
    return None if text is None else parse_label(what, text)
