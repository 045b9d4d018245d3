"""Rows of samples: lists with filters, gold documents, neighbours, endings, and what changed between two jobs."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from pydantic import StringConstraints
from sqlalchemy import Row, RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Invalid, NotFound
from shared.mathtext.equations import arithmetic
from shared.pipelines.imported import IMPORTED
from shared.pipelines.measured import MEASURED
from shared.pipelines.program_aided import PROGRAM
from shared.rag import provenance
from shared.rag.grading import Extract, get_grader, grader_names
from shared.rag.provenance import EndedSample, Ending, FoundCandidate, SampleFacts, classify_ending
from shared.replies import Graded, Marked
from shared.samples import Decision, Extraction, GateDecision, Outcome, SampleRow, Strategy
from shared.storage import database as storage
from shared.storage import jobs
from shared.storage.archive import show_archived
from shared.storage.database import Database, SampleState, fill_names, sql, try_decode, try_decode_params

# Items name documents by the ids of the corpus's upload.
SELECT_GOLD_DOCUMENTS = text("""
    SELECT i.ordinal, g.key AS name, CAST(g.value AS integer) AS grade, encode(d.hash, 'hex') AS hash
    FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id CROSS JOIN LATERAL jsonb_each_text(i.gold_documents) g
    LEFT JOIN corpus_documents d ON d.corpus_id = j.corpus_id AND d.external_id = g.key
    WHERE j.id = :job AND i.ordinal BETWEEN :first AND :last AND CAST(g.value AS integer) > 0""")
ANY = text("""
    SELECT j.corpus_id IS NOT NULL AND EXISTS (
        SELECT FROM items i WHERE i.dataset_id = j.dataset_id AND i.gold_documents IS NOT NULL) AS found
    FROM jobs j WHERE j.id = :job""")
LABELLED = text("""
    SELECT i.ordinal FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.id = :job AND i.ordinal BETWEEN :first AND :last AND i.gold_documents IS NOT NULL""")
ABSENT = "absent: "
"""Prefix that replaces the hash of a document that the corpus does not hold."""


async def has_gold_documents(connection: AsyncConnection, job: int) -> bool:
    """Tell whether the job searches a corpus and its dataset names relevant documents."""
    return bool((await connection.execute(ANY, {"job": job})).scalar_one())


async def load_gold_documents(database: Database, job: int, first: int, last: int) -> dict[int, dict[str, int]]:
    """Load {ordinal: {document hash: grade}} for the items from `first` to `last` that have a relevant document.

    Documents with equal content count once, with the better grade. A document that the corpus does not hold counts as
    a relevant document that no search can find.
    """
    async with database.transaction() as connection:
        return await read_gold_documents(connection, job, first, last)


async def read_gold_documents(
    connection: AsyncConnection, job: int, first: int, last: int
) -> dict[int, dict[str, int]]:
    """Load the same in the caller's transaction."""
    gold: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(SELECT_GOLD_DOCUMENTS, {"job": job, "first": first, "last": last}):
        document = row.hash or f"{ABSENT}{row.name}"
        gold[row.ordinal][document] = max(row.grade, gold[row.ordinal].get(document, 0))
    return dict(gold)


async def list_labelled_items(connection: AsyncConnection, job: int, first: int, last: int) -> frozenset[int]:
    """List the items from `first` to `last` that say which documents are relevant, even if none is."""
    rows = await connection.execute(LABELLED, {"job": job, "first": first, "last": last})
    return frozenset(rows.scalars())


# Determine how samples ended from their rows: the reason for a wrong answer depends on how it was made.

PARAMS = text("SELECT params FROM jobs WHERE id = :job")
# Last texts first. Replies of other roles are not read: a sample may have a hundred ratings.
CALLS = sql("""
    SELECT t.sample_id, c.role, a.reply FROM steps t JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id AND c.role = 'generate'
    WHERE t.sample_id = ANY(CAST(:samples AS bigint[])) AND c.role IN ('retrieve', 'generate')
    ORDER BY t.sample_id, t.position DESC, t.slot DESC""")
OPEN = frozenset({Ending.JUDGE_FAILURE, Ending.LOGIC})
"""Endings that need more than the outcome to be decided."""
KEPT = 16_384
"""Number of texts whose refuted equations are cached, about 30 MB."""


class _ReplyText(msgspec.Struct, frozen=True):
    """The part of a generator's reply that is needed here."""

    text: str = ""


class _Grading(msgspec.Struct, frozen=True):
    """The part of a job's grading parameters that is needed here."""

    grader: str = ""


class _EndingParams(msgspec.Struct, frozen=True):
    """The part of a job's parameters that is needed here, in a form that all releases can read."""

    grading: _Grading = _Grading()


class _EndingTrace(msgspec.Struct, frozen=True):
    """The part of a trace that is needed here."""

    candidates: tuple[FoundCandidate, ...] = ()
    unscored: bool = False
    decisions: tuple[Decision, ...] = ()


class _EndingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an outcome that is needed here. It is read in half of the time, because it makes fewer objects."""

    answer: str | None
    extraction: Extraction
    truncated: bool = False
    truncated_by: str | msgspec.UnsetType = msgspec.UNSET
    context: tuple[str, ...] = ()
    refusal: str | None = None
    trace: _EndingTrace = _EndingTrace()
    verdict: Graded | Marked | None = None
    grading_failure: str | None = None


class _AnswerHistory(msgspec.Struct):
    """Facts about a sample that only its calls tell, not its outcome."""

    searched: bool = False
    text: str | None = None
    holds: bool | None = None
    """Whether this text contains the answer; None: unknown, because there is no other text."""

    def add(self, written: str, answer: str | None, extract: Extract) -> None:
        """Add a generated text, newest first: the last text with the answer counts, otherwise the last text."""
        if self.text is None:
            self.text = written
            return
        if self.holds is None:
            self.holds = extract(self.text)[0] == answer
        if not self.holds and extract(written)[0] == answer:
            self.text, self.holds = written, True


def _collect_facts(row: RowMapping, outcome: Outcome | _EndingOutcome | None) -> SampleFacts | None:
    """Collect the facts in a sample's row; None if it neither completed nor failed."""
    if outcome is None:
        return None if row["failure"] is None else SampleFacts(failure=row["failure"])
    return SampleFacts(
        refusal=outcome.refusal,
        correct=row["correct"],
        mathematics=not isinstance(outcome.verdict, Marked),
        grading_failure=outcome.grading_failure,
        strict=row["strict"],
        gold=row["gold"] is not None,
        extraction=outcome.extraction,
        truncated=outcome.truncated,
        truncated_by=outcome.truncated_by or "",
        candidates=outcome.trace.candidates,
        context=outcome.context,
        unscored=outcome.trace.unscored,
        imported=any(each.stage == IMPORTED for each in outcome.trace.decisions),
    )


async def find_endings(
    connection: AsyncConnection, job: int, samples: Sequence[tuple[RowMapping, Outcome | _EndingOutcome | None]]
) -> list[EndedSample | None]:
    """Determine the endings of samples of one job, in order; None for those that neither completed nor failed."""
    facts = [_collect_facts(row, outcome) for row, outcome in samples]
    endings = [classify_ending(each) if each else None for each in facts]
    undecided = [
        (place, row, known)
        for place, ((row, _), known, ended) in enumerate(zip(samples, facts, endings, strict=True))
        if known and ended and ended.ending in OPEN
    ]
    if not undecided:
        return endings
    indexes = [row["ordinal"] for _, row, _ in undecided]
    relevant = await read_gold_documents(connection, job, min(indexes), max(indexes))
    # The function by which the job finds an answer in a text; that of mathematics if its grader is unknown.
    params = (await connection.execute(PARAMS, {"job": job})).scalar_one()
    known_params, _ = try_decode(params, _EndingParams, "")
    name = known_params.grading.grader if known_params else ""
    extract = get_grader(name if name in grader_names() else "").extract
    outcomes = {row["id"]: outcome for row, outcome in samples if outcome}
    answers = {row["id"]: outcomes[row["id"]].answer for _, row, _ in undecided}
    async with show_archived(connection, job, answers):
        made = await _load_histories(connection, answers, extract)

    def decide() -> None:
        for place, row, known in undecided:
            history, gold = made[row["id"]], relevant.get(row["ordinal"])
            refuted = _find_refuted_equations(find_kept_text(outcomes[row["id"]]) or history.text or "")
            documents = None if gold is None else frozenset(gold)
            complete = replace(known, searched=history.searched, relevant=documents, refuted=refuted)
            endings[place] = classify_ending(complete)

    await to_thread.run_sync(decide)  # parsing equations takes a while
    return endings


async def _load_histories(
    connection: AsyncConnection, answers: Mapping[int, str | None], extract: Extract
) -> dict[int, _AnswerHistory]:
    """Load the histories of samples, given the answer of each."""
    made = {sample: _AnswerHistory() for sample in answers}

    def add_calls(calls: Sequence[Row[Any]]) -> None:
        for call in calls:
            if call.role == "retrieve":
                made[call.sample_id].searched = True
            elif call.reply is not None:
                written, _ = try_decode(call.reply, _ReplyText, "")
                made[call.sample_id].add(written.text if written else "", answers[call.sample_id], extract)

    result = await connection.stream(CALLS, {"samples": list(made)})
    async for calls in result.partitions(CALLS_AT_ONCE):
        await to_thread.run_sync(add_calls, calls)
    return made


def find_kept_text(outcome: Outcome | _EndingOutcome) -> str | None:
    """Return the text that a decision keeps: another system's, the measured job's, or a program with its output."""
    stages = (IMPORTED, MEASURED, PROGRAM)
    texts = (each.detail.get("text") for each in outcome.trace.decisions if each.stage in stages)
    return next((text for text in texts if isinstance(text, str)), None)


@lru_cache(maxsize=KEPT)
def _find_refuted_equations(written: str) -> tuple[str, ...]:
    """List a text's refuted equations; cached because reports are requested repeatedly."""
    return tuple(each.text for each in arithmetic(written) if each.holds is False)


# Filter lists of samples: SQL narrows them down, and conditions on outcomes are checked afterwards.

CONDITIONS = {
    "state": "s.state = :state",
    "correct": "o.correct = :correct",
    "wrong": "NOT o.correct",
    "differing": "o.correct <> o.strict",
    "subject": "i.subject = :subject",
    "level": "i.level = :level",
    "text": "(i.question ILIKE :text OR o.answer ILIKE :text)",
    "moved": "o.sample_id IS NOT NULL",
    "noted": "EXISTS (SELECT FROM sample_notes n WHERE n.sample_id = s.id)",
}
"""SQL condition of each filter."""
OF_ENDINGS = {
    Ending.CORRECT: "o.correct",
    Ending.REFUSED: "(s.failure = 'refused' OR o.extraction = 'refused')",
    Ending.FAILED: "s.state = {FAILED}",
    Ending.EXTRACTION: "o.extraction NOT IN ('ok', 'refused')",
    Ending.TRUNCATED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
    Ending.UNGRADED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
}
"""Necessary SQL condition of each ending; the taxonomy decides."""
WRONG = "NOT o.correct AND o.extraction = 'ok'"
"""Necessary SQL condition of all other endings."""
# Scores by rules and by the verifier have features. Inside a text, the quotes would be escaped.
FEATURED = "position(CAST('\\x{}' AS bytea) IN o.outcome) > 0".format(b'"features":{'.hex())
OF_SCORERS = {
    Strategy.RULES: FEATURED,
    Strategy.VERIFIER: "o.sample_id IS NOT NULL",
    Strategy.JUDGE: f"NOT {FEATURED}",
}
"""Necessary SQL condition of each scorer; `candidates.scored_by` decides."""
# Keyset pagination over the unique index (job_id, kind, ordinal, repeat): every page costs the same. Outcomes are long,
# so they are fetched only for the rows of the page.
SELECT_FILTERED = """
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, o.correct, o.strict
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND (s.ordinal, s.repeat) > (:ordinal, :repeat) AND s.ordinal < :until"""
SELECT_FILTERED_PAGE = """
    WITH found AS MATERIALIZED ({found} ORDER BY s.ordinal, s.repeat LIMIT :n)
    SELECT found.*, o.outcome, n.* FROM found LEFT JOIN outcomes o ON o.sample_id = found.id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE thumb) AS thumbs_up, count(*) FILTER (WHERE NOT thumb) AS thumbs_down,
            string_agg(author || ': ' || note, chr(10) ORDER BY author) FILTER (WHERE note <> '') AS notes
        FROM sample_notes WHERE sample_id = found.id) n
    ORDER BY found.ordinal, found.repeat"""
ENDED = "s.state >= {COMPLETED}"


Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class SampleSelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Filters of a list of samples; null accepts any value."""

    state: Literal["ready", "waiting", "completed", "failed", "cancelled"] | None = None
    """State of the sample."""
    correct: bool | None = None
    """Verdict of the job's grader. Samples without a verdict match neither value."""
    ending: Ending | None = None
    """How the sample ended: correct, or the kind of error (docs/explanation/statistics.md)."""
    subject: Word | None = None
    """Subject of the item."""
    level: Word | None = None
    """Level of the item."""
    scored_by: Strategy | None = None
    """Scorer of the sample's documents: the gate's choice, or the rules if the question was routed to them."""
    moved: bool | None = None
    """Whether reranking changed the documents of the prompt or their order."""
    text: Word | None = None
    """Text in the question or the answer, ignoring case."""
    differing: bool = False
    """Only samples on which the two graders disagree."""
    wrong: bool = False
    """Only samples with a wrong answer (`correct` is false). Failed samples have no verdict."""
    noted: bool = False
    """Only samples with a thumb or a note."""

    @property
    def asked(self) -> dict[str, object]:
        """The filters that are set."""
        fields = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in fields if value != field.default}

    def values(self) -> dict[str, object]:
        """Return the statement's parameters."""
        values = {name: value for name, value in self.asked.items() if f":{name}" in CONDITIONS.get(name, "")}
        if self.state is not None:
            values["state"] = SampleState[self.state.upper()].value
        if self.text is not None:
            escaped = self.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")  # the wildcards of LIKE
            values["text"] = f"%{escaped}%"
        return values

    def has(self, outcome: Outcome | None) -> bool:
        """Tell whether a sample with this outcome passes the filters that SQL and endings do not decide."""
        if self.scored_by is not None and (
            outcome is None or provenance.find_scorer(outcome.trace) is not self.scored_by
        ):
            return False
        return self.moved is None or (outcome is not None and provenance.is_context_reranked(outcome) is self.moved)


EVERY = SampleSelection()


def build_statement(only: SampleSelection, *, ended: bool = False) -> TextClause:
    """Build the statement of a page; with `ended`, only of completed, failed and cancelled samples."""
    conditions = [CONDITIONS[name] for name in only.asked if name in CONDITIONS]
    if only.ending is not None:
        conditions.append(OF_ENDINGS.get(only.ending, WRONG))
    if only.scored_by is not None:
        conditions.append(OF_SCORERS[only.scored_by])
    return _compile_statement((*conditions, ENDED) if ended else tuple(conditions))


@cache
def _compile_statement(conditions: tuple[str, ...]) -> TextClause:
    return sql(SELECT_FILTERED_PAGE.format(found=" AND ".join((SELECT_FILTERED, *conditions))))


# A generic plan would scan all samples where a plan for the given values uses an index.
PLAN_EACH = text("SET LOCAL plan_cache_mode = force_custom_plan")
JOB = text("SELECT repeats, prepared, params FROM jobs WHERE id = :job")
BEHIND = text("""
    SELECT EXISTS (
        SELECT FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat))""")
START = (-1, -1)
LAST, LAST_REPEAT = (1 << 31) - 1, (1 << 15) - 1
WINDOW = 100_000
"""Largest number of samples that a page of a filtered list scans; its cursor continues after them."""
MOST_READ = 2_000
"""Largest number of outcomes that a page reads for filters that SQL cannot decide."""
BATCH = 250
STREAMED_AT_ONCE = 500
ENDINGS_AT_ONCE = CALLS_AT_ONCE = 1000
SampleWithOutcome = tuple[SampleRow, Outcome | None]
Place = tuple[int, int]
"""(index, repeat)"""


class _ReadBatch(NamedTuple):
    """A batch of rows and those that pass the filters."""

    found: list[SampleWithOutcome]
    size: int
    place: Place
    """Place of the last row in the batch."""


async def list_samples(
    database: Database, reference: str, limit: int, cursor: str | None, only: SampleSelection = EVERY,
    window: int | None = None,
) -> storage.Page[SampleRow]:  # fmt: skip
    """List samples in dataset order.

    A page may hold fewer than `limit` samples even if more follow, because a filtered one scans `window` samples at
    most, else `WINDOW`.
    """
    async with database.snapshot() as connection:
        job = await jobs.resolve(connection, reference)
        scope = storage.cursor_scope(
            "samples", job=str(job), **{name: str(value) for name, value in only.asked.items()}
        )
        index, repeat = storage.decode_cursor(cursor, scope, 2) if cursor else START
        after = index, repeat
        if not only.asked:
            found = (await _read(connection, job, after, limit + 1)).found
            return _make_page([row for row, _ in found], limit, scope, None)
        rows, stopped = await _search(connection, job, after, limit + 1, only, window or WINDOW)
    return _make_page(rows, limit, scope, stopped)


def _make_page(rows: list[SampleRow], limit: int, scope: str, stopped: Place | None) -> storage.Page[SampleRow]:
    """Make a page; `stopped` is the place where the scan ended, if samples remain."""
    if len(rows) > limit:
        stopped = rows[limit - 1].index, rows[limit - 1].repeat
    return storage.Page(data=rows[:limit], next_cursor=storage.encode_cursor(scope, *stopped) if stopped else None)


async def _search(
    connection: AsyncConnection, job: int, after: Place, limit: int, only: SampleSelection, window: int
) -> tuple[list[SampleRow], Place | None]:
    """Return at most `limit` matching samples of the scanned part, and the place where it ends if samples remain."""
    until = await _find_window_end(connection, job, after, only, window)
    if until is None:
        return [], None
    await connection.execute(PLAN_EACH)
    found: list[SampleRow] = []
    size, seen = limit, 0
    while len(found) < limit and seen < MOST_READ:
        read = await _read(connection, job, after, size, only=only, until=until)
        found += [row for row, _ in read.found]
        seen += read.size
        if read.size < size:
            after = until - 1, LAST_REPEAT
            break
        after, size = read.place, BATCH
    place = {"ordinal": after[0], "repeat": after[1]}
    return found, after if bool((await connection.execute(BEHIND, {"job": job, **place})).scalar_one()) else None


async def _find_window_end(
    connection: AsyncConnection, job: int, after: Place, only: SampleSelection, window: int
) -> int | None:
    """Return the first item after the part to scan; None if no sample of the job can match."""
    row = (await connection.execute(JOB, {"job": job})).one()
    decision, _ = try_decode(row.prepared, GateDecision, "")
    params, _ = try_decode_params(row.params, "")
    if only.scored_by is not None and decision is not None and params is not None:
        routed = {Strategy.RULES} if params.route.enabled else set()
        if only.scored_by not in {decision.strategy, *routed}:
            return None
    items = max(1, window // int(row.repeats))
    return min(after[0] + 1 + items, LAST)


async def stream_with_outcomes(
    database: Database, job: int, batch: int = STREAMED_AT_ONCE
) -> AsyncIterator[list[SampleWithOutcome]]:
    """Yield batches of all ended samples in dataset order, with one short transaction per batch."""
    after = START
    while True:
        async with database.snapshot() as connection:
            found = await load_with_outcomes(connection, job, after, batch)
        if not found:
            return
        yield found
        after = found[-1][0].index, found[-1][0].repeat


async def stream_with_outcomes_in(connection: AsyncConnection, job: int) -> AsyncIterator[list[SampleWithOutcome]]:
    """Yield the same batches in the caller's transaction."""
    after = START
    while found := await load_with_outcomes(connection, job, after, STREAMED_AT_ONCE):
        yield found
        after = found[-1][0].index, found[-1][0].repeat


# The columns decide most endings: of a correct or failed sample, the outcome is neither sent nor decoded.
SELECT_ENDINGS = sql("""
    WITH found AS MATERIALIZED (
        SELECT s.id, s.ordinal, s.repeat, s.failure, i.hash, i.gold, o.correct, o.strict, CASE
            WHEN o.correct AND o.extraction <> 'refused' THEN 'correct'
            WHEN o.sample_id IS NULL AND s.failure = 'refused' THEN 'refused'
            WHEN o.sample_id IS NULL AND s.failure IS NOT NULL THEN 'failed' END AS ending
        FROM samples s JOIN jobs j ON j.id = s.job_id
        JOIN items i ON {ASKED_BY_SAMPLE}
        LEFT JOIN outcomes o ON o.sample_id = s.id
        WHERE s.job_id = :job AND s.kind = 'item' AND s.state >= {COMPLETED}
            AND (s.ordinal, s.repeat) > (:ordinal, :repeat)
        ORDER BY s.ordinal, s.repeat LIMIT :n)
    SELECT found.*, o.outcome FROM found LEFT JOIN outcomes o ON o.sample_id = found.id AND found.ending IS NULL
    ORDER BY found.ordinal, found.repeat""")


class SampleEnding(NamedTuple):
    """The ending of a sample, and the hash of the item that it answers."""

    item: bytes
    repeat: int
    ending: str


async def stream_endings(database: Database, job: int) -> AsyncIterator[list[SampleEnding]]:
    """Yield batches of the endings of all completed and failed samples in dataset order, with one short transaction per
    batch."""
    after = START
    while True:
        values = {"job": job, "ordinal": after[0], "repeat": after[1], "n": ENDINGS_AT_ONCE}
        async with database.snapshot() as connection:
            rows = (await connection.execute(SELECT_ENDINGS, values)).mappings().all()
            undecided = await to_thread.run_sync(_decode_undecided, rows)
            found = await find_endings(connection, job, undecided)
        if not rows:
            return
        endings = {row["id"]: each.ending.value for (row, _), each in zip(undecided, found, strict=True) if each}
        yield [
            SampleEnding(row["hash"], row["repeat"], ending)
            for row in rows
            if (ending := row["ending"] or endings.get(row["id"])) is not None
        ]
        after = rows[-1]["ordinal"], rows[-1]["repeat"]


def _decode_undecided(rows: Sequence[RowMapping]) -> list[tuple[RowMapping, _EndingOutcome | None]]:
    """Decode the outcomes of rows whose columns do not decide the ending."""
    return [(row, try_decode(row["outcome"], _EndingOutcome, "")[0]) for row in rows if row["ending"] is None]


async def load_with_outcomes(
    connection: AsyncConnection, job: int, after: Place, limit: int
) -> list[SampleWithOutcome]:
    """Load ended samples with outcomes after the place (index, repeat), in dataset order."""
    return (await _read(connection, job, after, limit, ended=True)).found


def make_not_found(reference: str, index: int, repeat: int) -> NotFound:
    """Make the error about a sample that the job does not have."""
    hint = "wait until the job runs, or choose another sample"
    return NotFound(f"job {reference!r} has no sample {index}, repeat {repeat}", hint=hint)


async def find_sample(connection: AsyncConnection, job: int, index: int, repeat: int) -> SampleRow | None:
    """Find a single sample; None if it does not exist."""
    found = (await _read(connection, job, (index, repeat - 1), 1)).found
    return next((row for row, _ in found if (row.index, row.repeat) == (index, repeat)), None)


async def _read(
    connection: AsyncConnection, job: int, after: Place, limit: int, *, ended: bool = False,
    only: SampleSelection = EVERY, until: int = LAST,
) -> _ReadBatch:  # fmt: skip
    """Read the next `limit` samples that SQL finds, and apply the filters that SQL cannot decide."""
    place = {"job": job, "ordinal": after[0], "repeat": after[1], "until": until}
    found = await connection.execute(build_statement(only, ended=ended), {**place, "n": limit, **only.values()})
    rows = found.mappings().all()
    read = [(row, *try_decode(row["outcome"], Outcome, "its outcome")) for row in rows]
    kept = [each for each in read if only.has(each[1])]
    ends = await find_endings(connection, job, [(row, outcome) for row, outcome, _ in kept])
    traced = [
        (_make_row(row, outcome, problem, ended), outcome)
        for (row, outcome, problem), ended in zip(kept, ends, strict=True)
        if only.ending in (None, ended and ended.ending)
    ]
    last = (rows[-1]["ordinal"], rows[-1]["repeat"]) if rows else after
    return _ReadBatch(traced, len(rows), last)


def _make_row(row: RowMapping, outcome: Outcome | None, problem: str | None, ended: EndedSample | None) -> SampleRow:
    copied = ("repeat", "custom_id", "question", "gold", "subject", "level", "correct", "strict", "failure",
              "thumbs_up", "thumbs_down", "notes")  # fmt: skip
    return SampleRow(
        index=row["ordinal"],
        state=SampleState(row["state"]).word,
        answer=outcome.answer if outcome else None,
        extraction=outcome.extraction.value if outcome else None,
        truncated=outcome.truncated if outcome else False,
        grading_failure=outcome.grading_failure if outcome else None,
        context=outcome.context if outcome else (),
        duplicates=len(outcome.trace.duplicates) if outcome else 0,
        truncated_by=(outcome.truncated_by or "length") if outcome and outcome.truncated else None,
        unscored=outcome.trace.unscored if outcome else False,
        ended_at=row["ended_at"],
        detail=problem or row["detail"],
        ending=ended.ending.value if ended else None,
        ending_reason=ended.reason if ended else None,
        score=outcome.verdict.score if outcome and outcome.verdict else None,
        metrics={name: each.value for name, each in outcome.metrics.items()} if outcome and outcome.metrics else None,
        **{field: row[field] for field in copied},
    )


# The samples before and after one in dataset order: an imported job may lack items, and repeats of them.

NEIGHBOURS = text("""
    WITH job AS (SELECT id FROM jobs WHERE public_id = :job)
    (SELECT true AS later, ordinal, repeat FROM samples
        WHERE job_id = (SELECT id FROM job) AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat)
        ORDER BY ordinal, repeat LIMIT 1)
    UNION ALL
    (SELECT false, ordinal, repeat FROM samples
        WHERE job_id = (SELECT id FROM job) AND kind = 'item' AND (ordinal, repeat) < (:ordinal, :repeat)
        ORDER BY ordinal DESC, repeat DESC LIMIT 1)""")


class AdjacentSamples(NamedTuple):
    """Index and repeat of both; None: the sample does not exist."""

    earlier: Place | None
    later: Place | None


async def neighbours(database: Database, job: str, index: int, repeat: int) -> AdjacentSamples:
    """Find the samples next to this one; `job` is a public id."""
    async with database.statement() as connection:
        rows = await connection.execute(NEIGHBOURS, {"job": job, "ordinal": index, "repeat": repeat})
        found = {row.later: (row.ordinal, row.repeat) for row in rows}
    return AdjacentSamples(earlier=found.get(False), later=found.get(True))


# List samples that only one of two jobs answered correctly: same question, gold answer and repeat in both.

# A question that occurs several times in a dataset is matched in order: first with first, second with second.
SIDE = fill_names("""
    SELECT s.id, s.ordinal, s.repeat, o.correct, i.hash,
        row_number() OVER (PARTITION BY i.hash, s.repeat ORDER BY s.ordinal) AS turn
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE s.kind = 'item' AND s.job_id = """)
MATCHED = f"""
    WITH one AS ({SIDE} :left_job), other AS ({SIDE} :right_job),
    matched AS (
        SELECT one.ordinal, one.repeat, other.ordinal AS other, one.id AS left_id, other.id AS right_id,
            one.correct AS left_correct, other.correct AS right_correct
        FROM one JOIN other USING (hash, repeat, turn))
    """  # noqa: S608 - parts of this module alone
# One pass for page and counts: each row has the counts, and an empty page still has one row with them.
SELECT_CHANGED_PAGE = sql(f"""{MATCHED},
    changed AS MATERIALIZED (SELECT * FROM matched WHERE left_correct <> right_correct),
    counts AS (
        SELECT count(*) FILTER (WHERE left_correct) AS all_gained, count(*) FILTER (WHERE right_correct) AS all_lost
        FROM changed)
    SELECT c.all_gained, c.all_lost, m.ordinal AS index, m.repeat, m.other AS right_index, i.custom_id, i.question,
        i.gold, i.subject, i.level, m.left_correct, m.right_correct, p.outcome AS left_outcome,
        q.outcome AS right_outcome
    FROM counts c LEFT JOIN (
        SELECT * FROM changed WHERE (ordinal, repeat) > (:ordinal, :after)
            AND (left_correct OR NOT :gained) AND (right_correct OR NOT :lost)
        ORDER BY ordinal, repeat LIMIT :n) m ON true
    LEFT JOIN jobs j ON j.id = :left_job LEFT JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = m.ordinal
    LEFT JOIN outcomes p ON p.sample_id = m.left_id LEFT JOIN outcomes q ON q.sample_id = m.right_id
    ORDER BY m.ordinal, m.repeat""")  # noqa: S608
NAMES = text("""
    SELECT l.name AS left_name, r.name AS right_name FROM jobs l CROSS JOIN jobs r
    WHERE l.id = :left_job AND r.id = :right_job""")
OTHER = sql(f"{MATCHED} SELECT other FROM matched WHERE ordinal = :ordinal AND repeat = :repeat")  # noqa: S608
Only = Literal["changed", "gained", "lost"]


class AnsweredSide(msgspec.Struct, frozen=True, kw_only=True):
    """One job's answer."""

    answer: str | None
    """Extracted answer; null if none was found."""
    correct: bool
    """Whether the answer is correct."""
    truncated: bool
    """Whether the text was cut off before its end."""


class ChangedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A question that only one of the two jobs answered correctly."""

    index: int
    """Index of the item in the left job's dataset, from 0."""
    right_index: int
    """Index of the item in the right job's dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    custom_id: str | None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None
    """The expected answer; null if the item has none."""
    subject: str | None
    """Subject of the item; null if it has none."""
    level: str | None
    """Level of the item; null if it has none."""
    left: AnsweredSide
    """The left job's answer."""
    right: AnsweredSide
    """The right job's answer."""


class Match(NamedTuple):
    """The right job's sample of the same question."""

    left_name: str
    right_name: str
    """Name of the right job."""
    right_index: int


class ChangedSamples(msgspec.Struct, frozen=True, kw_only=True):
    """A page of changed samples, with the totals over all pages."""

    left_name: str
    """Name of the left job."""
    right_name: str
    """Name of the right job."""
    gained: int
    """Samples that the left job answered correctly and the right one did not."""
    lost: int
    """Samples that the right job answered correctly and the left one did not."""
    data: list[ChangedSample]
    """The samples."""
    next_cursor: str | None
    """Pass it as `cursor` to get the next page; null on the last page."""


async def list_changed_samples(
    database: Database, left: str, right: str, only: Only = "changed", limit: int = storage.DEFAULT,
    cursor: str | None = None,
) -> ChangedSamples:  # fmt: skip
    """List changed samples in the left dataset's order. Samples without a verdict in both jobs are left out.

    Raises:
        NotFound: the job does not exist.
        Conflict: a reference matches several jobs.
        Invalid: both references name the same job.
        BadRequest: the cursor belongs to another list.
    """
    async with database.snapshot() as connection:
        both = await _resolve_both(connection, left, right)
        scope = storage.cursor_scope("changed", only=only, **{side: str(job) for side, job in both.items()})
        ordinal, after = storage.decode_cursor(cursor, scope, 2) if cursor else START
        values = {
            "ordinal": ordinal,
            "after": after,
            "n": limit + 1,
            "gained": only == "gained",
            "lost": only == "lost",
        }
        named = (await connection.execute(NAMES, both)).one()
        rows = (await connection.execute(SELECT_CHANGED_PAGE, {**both, **values})).mappings().all()
    copied = ("index", "right_index", "repeat", "custom_id", "question", "gold", "subject", "level")
    found = [
        ChangedSample(
            left=_read_side(row["left_outcome"], correct=row["left_correct"]),
            right=_read_side(row["right_outcome"], correct=row["right_correct"]),
            **{field: row[field] for field in copied},
        )
        for row in rows
        if row["index"] is not None
    ]
    last = found[:limit][-1:]
    page = storage.make_page(found, limit, scope, *(key for row in last for key in (row.index, row.repeat)))
    return ChangedSamples(
        **named._mapping,
        gained=rows[0]["all_gained"],
        lost=rows[0]["all_lost"],
        data=page.data,
        next_cursor=page.next_cursor,
    )


async def find_match(database: Database, left: str, right: str, index: int, repeat: int) -> Match:
    """Find the right job's sample of the same question as the left job's sample.

    Raises:
        NotFound: a job or the sample does not exist, or the right job lacks the question.
        Conflict, Invalid: see `list_changed_samples`.
    """
    async with database.snapshot() as connection:
        both = await _resolve_both(connection, left, right)
        named = (await connection.execute(NAMES, both)).one()
        found = (await connection.execute(OTHER, {**both, "ordinal": index, "repeat": repeat})).scalar()
    if found is None:
        raise NotFound(
            f"{left!r} and {right!r} have no common sample {index}, repeat {repeat}",
            hint="two samples match if question, gold answer and repeat are equal",
        )
    return Match(named.left_name, named.right_name, found)


async def find_names(database: Database, left: str, right: str) -> tuple[str, str]:
    """Find the names of two jobs, which may be the same job.

    Raises:
        NotFound: the job does not exist.
        Conflict: a reference matches several jobs.
    """
    async with database.snapshot() as connection:
        both = {"left_job": await jobs.resolve(connection, left), "right_job": await jobs.resolve(connection, right)}
        found = (await connection.execute(NAMES, both)).one()
    return found.left_name, found.right_name


async def _resolve_both(connection: AsyncConnection, left: str, right: str) -> dict[str, int]:
    both = {"left_job": await jobs.resolve(connection, left), "right_job": await jobs.resolve(connection, right)}
    if both["left_job"] == both["right_job"]:
        raise Invalid(f"`right`: {right!r} is the same job as `left`", hint="name two jobs")
    return both


def _read_side(stored: bytes, *, correct: bool) -> AnsweredSide:
    outcome, problem = try_decode(stored, Outcome, "its outcome")
    return AnsweredSide(
        answer=outcome.answer if outcome else problem, correct=correct, truncated=bool(outcome and outcome.truncated)
    )
