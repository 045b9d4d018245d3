"""The provenance of samples: records, calls with their texts, documents, residencies and results."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import records
from shared.calls import DocumentRef, Request, seed_of, text_of
from shared.mathtext.equations import arithmetic
from shared.params import Params
from shared.rag.grading import Extract, grader_of_results
from shared.rag.prompts import LABELS, Template, TemplateChanged, TemplateError, list_references, render_request
from shared.rag.provenance import find_scorer
from shared.recent import LruCache
from shared.replies import Document, Generated, Rated, Reply, Retrieved
from shared.samples import Outcome, SampleRow
from shared.storage import jobs, samples
from shared.storage.archive import show_archived
from shared.storage.database import Database, SampleState, sql, try_decode, try_decode_params
from shared.storage.notes import load_notes
from shared.storage.prompts import find_templates
from shared.storage.samples import find_kept_text, find_sample, make_not_found, read_gold_documents

DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")
CAPACITY = 50_000
"""Number of cached documents; MATH's 7,500 take about 7 MB."""
MOST_TEMPLATES = 20
"""Number of cached stored prompts; one may take several megabytes."""


class LibraryCache:
    """An LRU cache of documents and stored prompts. They never change, so nothing is ever invalidated."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._recent: LruCache[Document] = LruCache(capacity)
        self._templates: LruCache[Template] = LruCache(MOST_TEMPLATES)

    async def documents(self, connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Document]:
        """Load the documents with these hashes, with one statement for those that are not cached.

        A document that the database does not have is left out, so that reading it raises KeyError.
        """
        wanted = set(hashes)
        found = self._recent.find(wanted)
        if missing := sorted(wanted - found.keys()):
            rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in missing]})
            found |= {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}
        self._recent.keep(found)
        return found

    async def load_texts(
        self, connection: AsyncConnection, requests: Collection[Request]
    ) -> tuple[dict[str, Document], dict[str, Template]]:
        """Load what `render_request` needs for these requests: documents, and stored prompts, by hash."""
        named = {reference.doc for request in requests for reference in list_references(request)}
        wanted = {request.template[1:] for request in requests if request.template.startswith("@")}
        templates = self._templates.find(wanted)
        if missing := wanted - templates.keys():
            templates |= await find_templates(connection, missing)
        self._templates.keep(templates)
        return await self.documents(connection, named), templates


def list_mentioned_documents(replies: Iterable[Reply]) -> set[str]:
    """Return the hashes of the documents in retrieval replies."""
    return {hit.document for reply in replies if isinstance(reply, Retrieved) for hit in reply.hits}


# Render again the prompts that models were sent; stored requests do not hold their documents' texts.

ROLES = ("judge", "write", "generate")
"""Roles whose calls have prompts."""


async def render_prompts(
    connection: AsyncConnection, library: LibraryCache, requests: Iterable[bytes]
) -> dict[bytes, str]:
    """Render the prompts by stored request; requests with a template of another release are left out."""
    read = {raw: request for raw in set(requests) if (request := try_decode(raw, Request, "")[0]) is not None}
    documents, templates = await library.load_texts(connection, read.values())
    found: dict[bytes, str] = {}
    for raw, request in read.items():
        try:
            found[raw] = text_of(render_request(request, documents, templates))
        except (TemplateChanged, TemplateError, KeyError):
            continue
    return found


RESIDENCIES = text("""
    SELECT r.epoch, r.device, r.cause, r.state, r.opened_at, r.closed_at,
        ARRAY(SELECT m.name FROM models m WHERE m.id = ANY(r.models) ORDER BY m.name) AS models,
        (SELECT COALESCE(jsonb_object_agg(m.name, r.measured -> 'memory_mib' -> CAST(m.id AS text)), '{}')
         FROM models m WHERE m.id = ANY(r.models)) AS memory_mib
    FROM residencies r WHERE r.epoch = ANY(:epochs) ORDER BY r.epoch""")


async def load_residencies(connection: AsyncConnection, epochs: Sequence[int]) -> tuple[records.Residency, ...]:
    """Load the residencies with these epochs, with their models' names."""
    rows = (await connection.execute(RESIDENCIES, {"epochs": list(epochs)})).mappings()
    return tuple(msgspec.convert(dict(row), records.Residency) for row in rows)


TIE_BREAK = "equal scores: the smaller document hash first"
REPLY: Any = Reply
SAMPLE = sql("""
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, i.gold_documents, o.outcome, encode(o.record_hash, 'hex') AS record_hash,
        encode(i.hash, 'hex') AS item_hash, encode(sha256(convert_to(i.gold, 'UTF8')), 'hex') AS gold_hash,
        j.code, j.params, encode(j.pipeline_hash, 'hex') AS pipeline_hash,
        encode(sha256(j.prepared), 'hex') AS decision_hash, r.seq, encode(r.hash, 'hex') AS link_hash,
        encode(r.previous, 'hex') AS previous
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id LEFT JOIN records r ON r.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND s.ordinal = :ordinal AND s.repeat = :repeat""")
STEPS = text("""
    SELECT t.position, t.slot, t.created, t.call_id, encode(c.key, 'hex') AS key, c.role, c.request,
        c.created_at AS queued_at, m.name AS model, encode(m.hash, 'hex') AS model_hash, m.backend, m.digest, m.version,
        m.options
    FROM steps t JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE t.sample_id = :sample ORDER BY t.position, t.slot""")
# Each of the two indexes of attempts by call has one kind of them.
ATTEMPTS = text("""
    SELECT call_id, accepted, outcome, reply, worker, device, epoch, started_at, ended_at, concurrency,
        encode(prompt_hash, 'hex') AS prompt_hash, prompt_tokens, cached_tokens, completion_tokens, finish_reason,
        prompt_ms, completion_ms, trace_id, created_at AS stored_at, encode(sha256(reply), 'hex') AS reply_hash
    FROM attempts WHERE (accepted AND call_id = ANY(:calls)) OR (NOT accepted AND call_id = ANY(:calls))
    ORDER BY call_id, id""")
SOURCES = text("""
    SELECT DISTINCT ON (t.call_id) t.call_id, j.public_id::text AS job, s.kind, s.ordinal AS index, s.repeat, t.position
    FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id
    WHERE t.call_id = ANY(:calls) AND t.created ORDER BY t.call_id, t.sample_id""")


async def load_provenance(
    database: Database, reference: str, index: int, repeat: int = 0, *, prompts: bool = False
) -> records.Provenance:
    """Load a sample's provenance from one snapshot; with `prompts`, also the prompts of model calls.

    Raises:
        NotFound: no such job or sample.
    """
    async with database.snapshot() as connection:
        job = await jobs.resolve(connection, reference)
        values = {"job": job, "ordinal": index, "repeat": repeat}
        row = (await connection.execute(SAMPLE, values)).mappings().first()
        if row is None:
            raise make_not_found(reference, index, repeat)
        async with show_archived(connection, job, [row["id"]]):
            steps = await _load_steps(connection, row["id"], prompts=prompts)
        outcome, problem = try_decode(row["outcome"], Outcome, "its outcome")
        params, _ = try_decode_params(row["params"], "")
        ended = await find_sample(connection, job, index, repeat)
        replies = [step.attempt.reply for step in steps if step.attempt is not None and step.role == "generate"]
        texts = [reply.text for reply in replies if isinstance(reply, Generated)]
        text = find_answering_text(texts, outcome, find_extractor(params))
        checked = await to_thread.run_sync(lambda: list(arithmetic(text or "")))
        equations = tuple(records.Equation(text=each.text, holds=each.holds) for each in checked)
        epochs = {step.attempt.epoch for step in steps if step.attempt and step.attempt.epoch is not None}
        place = (
            records.Place(sequence=row["seq"], hash=row["link_hash"], previous=row["previous"])
            if row["seq"] is not None
            else None
        )
        return records.Provenance(
            index=row["ordinal"],
            state=SampleState(row["state"]).word,
            outcome=outcome,
            text=text,
            equations=equations,
            scored_by=find_scorer(outcome.trace) if outcome else None,
            relevant=(await read_gold_documents(connection, job, index, index)).get(index),
            ending=ended.ending if ended else None,
            ending_reason=ended.ending_reason if ended else None,
            detail=problem or row["detail"],
            fusion=records.Fusion(rrf_k=params.rrf_k if params else None, tie_break=TIE_BREAK),
            link=place,
            steps=steps,
            documents=await LibraryCache().documents(connection, outcome.context if outcome else ()),
            residencies=await load_residencies(connection, sorted(epochs)),
            notes=(await load_notes(connection, [row["id"]])).get(row["id"], ()),
            **{field: row[field] for field in _COPIED},
        )


_COPIED = (
    "repeat", "custom_id", "question", "gold", "gold_documents", "subject", "level", "failure", "ended_at",
    "record_hash", "item_hash", "gold_hash", "pipeline_hash", "decision_hash", "code",
)  # fmt: skip


def find_extractor(params: Params | None) -> Extract:
    """Return the function by which a job finds an answer in a text; without parameters, that of mathematics."""
    return grader_of_results(params.grading.grader if params else "").extract


def find_answering_text(texts: Sequence[str], outcome: Outcome | None, extract: Extract) -> str | None:
    """Return the last generated text with the sample's answer; without an outcome, the last text."""
    if outcome is not None and (kept := find_kept_text(outcome)) is not None:
        return kept
    newest = list(reversed(texts))
    answering = (each for each in newest if outcome is not None and extract(each)[0] == outcome.answer)
    return next(answering, newest[0] if newest else None)


async def _load_steps(connection: AsyncConnection, sample: int, *, prompts: bool) -> tuple[records.Step, ...]:
    rows = (await connection.execute(STEPS, {"sample": sample})).mappings().all()
    calls = {"calls": [row["call_id"] for row in rows]}
    attempts: dict[int, list[tuple[bool, records.Attempt]]] = defaultdict(list)
    for row in (await connection.execute(ATTEMPTS, calls)).mappings():
        reply, problem = try_decode(row["reply"], REPLY, "the reply")
        rest = {field: value for field, value in row.items() if field not in ("call_id", "accepted", "reply")}
        attempts[row["call_id"]].append((row["accepted"], records.Attempt(reply=reply, unreadable=problem, **rest)))
    sources = {
        row["call_id"]: records.Source(**{field: row[field] for field in records.Source.__struct_fields__})
        for row in (await connection.execute(SOURCES, calls)).mappings()
    }
    requests = {row["request"] for row in rows if prompts and row["role"] in ROLES}
    texts = await render_prompts(connection, LibraryCache(), requests)
    return tuple(
        _make_step(
            row,
            attempts[row["call_id"]],
            None if row["created"] else sources.get(row["call_id"]),
            texts.get(row["request"]),
        )
        for row in rows
    )


def _make_step(
    row: RowMapping, attempts: Sequence[tuple[bool, records.Attempt]], source: records.Source | None, prompt: str | None
) -> records.Step:
    copied = (
        "position", "slot", "created", "role", "key", "model", "model_hash", "backend", "digest", "version", "options",
        "queued_at",
    )  # fmt: skip
    accepted = next((attempt for accepted, attempt in attempts if accepted), None)
    started = accepted.started_at if accepted else None
    request, _ = try_decode(row["request"], Request, "")
    sent = None
    if request is not None and (decoding := request.decoding) is not None:
        seed = seed_of(bytes.fromhex(row["key"]))
        sent = records.Sent(temperature=decoding.temperature, max_tokens=decoding.max_tokens, seed=seed)
    return records.Step(
        request=msgspec.Raw(row["request"]),
        source=source,
        sent=sent,
        prompt=prompt,
        queue_ms=(started - row["queued_at"]).total_seconds() * 1000 if started else None,
        attempt=accepted,
        other_attempts=tuple(attempt for accepted, attempt in attempts if not accepted),
        **{field: row[field] for field in copied},
    )


JOB = text("""
    SELECT j.public_id::text AS job, j.pipeline, encode(j.pipeline_hash, 'hex') AS pipeline_hash, j.params, j.pins,
        j.repeats, j.reuse, j.total, j.code, j.created_at, encode(sha256(j.prepared), 'hex') AS prepared,
        encode(o.record_hash, 'hex') AS preparation, d.name AS dataset, encode(d.hash, 'hex') AS dataset_hash,
        k.name AS corpus, encode(k.hash, 'hex') AS corpus_hash
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare'
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE j.id = :job""")
LAST = text("""
    SELECT r.seq, r.hash, s.ordinal, s.repeat
    FROM records r, LATERAL (SELECT ordinal, repeat FROM samples WHERE id = r.sample_id OFFSET 0) s
    WHERE r.job_id = :job ORDER BY r.seq DESC LIMIT 1""")
# Replies to positions before `consumed` belong to the sample. A cancelled sample has consumed none of the replies that
# it waited for at its end; some may still arrive for other samples.
# The next samples come first, along the index of their key: otherwise the planner reads and sorts all remaining samples
# for every batch.
SAMPLES = sql("""
    WITH batch AS MATERIALIZED (
        SELECT * FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat)
        ORDER BY ordinal, repeat LIMIT :n)
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id,
        encode(i.hash, 'hex') AS item, encode(sha256(o.outcome), 'hex') AS outcome,
        CASE s.state WHEN {CANCELLED} THEN s.position - 1 ELSE s.position END AS consumed
    FROM batch s, LATERAL (SELECT dataset_id FROM jobs WHERE id = s.job_id OFFSET 0) j,
        LATERAL (SELECT custom_id, hash FROM items i WHERE {ASKED_BY_SAMPLE} OFFSET 0) i
        LEFT JOIN LATERAL (SELECT outcome FROM outcomes WHERE sample_id = s.id OFFSET 0) o ON true
    ORDER BY s.ordinal, s.repeat""")
NEXT_SAMPLES = text("""
    SELECT id FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat)
    ORDER BY ordinal, repeat LIMIT :n""")
# Columns: sample, call, then the fields of `records.CallRecord` in order.
SELECT_CALL_RECORDS = sql("""
    SELECT t.sample_id, c.id, t.position, t.slot, t.created, encode(c.key, 'hex'), c.created_at, a.outcome,
        encode(sha256(a.reply), 'hex'), a.worker, a.device, a.epoch, a.started_at, a.ended_at, a.created_at,
        a.concurrency, encode(a.prompt_hash, 'hex'), a.prompt_tokens, a.completion_tokens, a.finish_reason,
        a.prompt_ms, a.completion_ms, a.trace_id, a.cached_tokens
    FROM unnest(CAST(:samples AS bigint[]), CAST(:consumed AS integer[])) u(id, consumed)
        CROSS JOIN LATERAL (SELECT * FROM steps WHERE sample_id = u.id OFFSET 0) t
        CROSS JOIN LATERAL (SELECT * FROM calls WHERE id = t.call_id OFFSET 0) c
        LEFT JOIN LATERAL (SELECT * FROM attempts a WHERE {ACCEPTED_FOR} c.id OFFSET 0) a ON t.position < u.consumed
    ORDER BY t.sample_id, t.position, t.slot""")
INTERRUPTIONS = text("""
    SELECT call_id, outcome, worker, created_at FROM attempts WHERE call_id = ANY(:calls) AND NOT accepted
    ORDER BY call_id, id""")
INSERT = text("""
    INSERT INTO records (job_id, sample_id, seq, hash, previous)
    SELECT :job, * FROM unnest(CAST(:samples AS bigint[]), CAST(:seqs AS integer[]), CAST(:hashes AS bytea[]),
        CAST(:previous AS bytea[]))""")
Key = tuple[int, int]
"""(item, repeat), the order of a chain."""
START: Key = (-1, -1)


class ChainEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job's chain so far."""

    sequence: int
    """Number of the next link."""
    hash: bytes
    after: Key
    """The last sample with a link."""


async def load_job_record(connection: AsyncConnection, job: int) -> records.JobRecord:
    """Load the record with which the job's chain begins."""
    row = (await connection.execute(JOB, {"job": job})).mappings().one()
    copied = ("job", "pipeline", "pipeline_hash", "pins", "repeats", "reuse", "total", "code", "created_at")
    return records.JobRecord(
        params=msgspec.Raw(row["params"]),
        dataset=records.NamedContent(name=row["dataset"], hash=row["dataset_hash"]),
        corpus=records.NamedContent(name=row["corpus"], hash=row["corpus_hash"]) if row["corpus"] else None,
        prepared=row["prepared"],
        preparation=row["preparation"],
        **{field: row[field] for field in copied},
    )


async def find_chain_end(connection: AsyncConnection, job: int) -> ChainEnd | None:
    """Find the end of the job's chain; None before its first link."""
    row = (await connection.execute(LAST, {"job": job})).first()
    return ChainEnd(sequence=row.seq + 1, hash=row.hash, after=(row.ordinal, row.repeat)) if row else None


async def list_next_samples(connection: AsyncConnection, job: int, after: Key, limit: int) -> list[int]:
    """List samples.id of the samples that `load_sample_records` loads."""
    values = {"job": job, "ordinal": after[0], "repeat": after[1], "n": limit}
    return list((await connection.execute(NEXT_SAMPLES, values)).scalars())


async def load_sample_records(
    connection: AsyncConnection, job: int, after: Key, limit: int
) -> list[tuple[int, records.SampleRecord]]:
    """Load (samples.id, record) of the job's next `limit` samples, all ended, in the order of the chain."""
    values = {"job": job, "ordinal": after[0], "repeat": after[1], "n": limit}
    rows = (await connection.execute(SAMPLES, values)).mappings().all()
    consumed = {"samples": [row["id"] for row in rows], "consumed": [row["consumed"] for row in rows]}
    calls = await _load_call_records(connection, consumed)
    copied = ("repeat", "item", "custom_id", "failure", "detail", "ended_at", "outcome")
    return [
        (
            row["id"],
            records.SampleRecord(
                index=row["ordinal"],
                state=SampleState(row["state"]).word,
                calls=calls.get(row["id"], ()),
                **{field: row[field] for field in copied},
            ),
        )
        for row in rows
    ]


async def _load_call_records(
    connection: AsyncConnection, consumed: dict[str, list[int]]
) -> dict[int, tuple[records.CallRecord, ...]]:
    """Load the call records by sample, in the order of its steps."""
    rows = (await connection.execute(SELECT_CALL_RECORDS, consumed)).all()
    answered = sorted({row[1] for row in rows if row.outcome is not None})
    interrupted: dict[int, tuple[records.Interruption, ...]] = defaultdict(tuple)
    for row in await connection.execute(INTERRUPTIONS, {"calls": answered}):
        interrupted[row[0]] += (records.Interruption(*row[1:]),)
    steps = groupby(rows, key=lambda row: row[0])
    return {sample: tuple(records.CallRecord(interrupted[row[1]], *row[2:]) for row in mine) for sample, mine in steps}


async def insert_links(
    connection: AsyncConnection, job: int, samples: Sequence[int], links: Sequence[records.Link]
) -> None:
    """Insert the links of these samples."""
    values = {
        "job": job,
        "samples": samples,
        "seqs": [link.sequence for link in links],
        "hashes": [link.hash for link in links],
        "previous": [link.previous for link in links],
    }
    await connection.execute(INSERT, values)


# Covers a batch of samples; requests are read only for ratings and prompts.
SELECT_CALL_RESULTS = sql("""
    SELECT s.ordinal, s.repeat, c.role, a.reply, a.prompt_tokens, a.completion_tokens,
        extract(epoch FROM a.ended_at - a.started_at) AS seconds,
        CASE WHEN c.role = 'judge' OR (c.role = 'generate' AND :prompts) THEN c.request END AS request
    FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE s.job_id = :job AND s.kind = 'item' AND (s.ordinal, s.repeat) >= (:first, :first_repeat)
        AND (s.ordinal, s.repeat) <= (:last, :last_repeat) AND c.role IN ('judge', 'write', 'generate')
    ORDER BY s.ordinal, s.repeat, t.position, t.slot""")
SELECT_PLACE = text("""
    SELECT id FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) >= (:first, :first_repeat)
        AND (ordinal, repeat) <= (:last, :last_repeat)""")
PARAMS = text("SELECT params FROM jobs WHERE id = :job")


class ResultRow(SampleRow, frozen=True, kw_only=True):
    """An ended sample with its models' replies."""

    text: str | None = None
    """The generator's text; if there are several, the last one with the sample's answer."""
    prompt: str | None = None
    """The prompt of this text; null unless prompts are requested."""
    judged: tuple[str, ...] = ()
    """Hashes of the rated documents, in the order of `ratings`; empty if the judge rated something else."""
    ratings: tuple[int, ...] = ()
    """The judge's ratings from 1 to 5; replies without a rating are in neither list."""
    prompt_tokens: int = 0
    """Prompt tokens of all model calls of the sample, including calls that another job had made."""
    completion_tokens: int = 0
    """Reply tokens of all model calls of the sample, including calls that another job had made."""
    seconds: float = 0.0
    """Sum of the durations of these calls in seconds; concurrent calls each count in full."""


async def stream_results(database: Database, job: int, *, prompts: bool = False) -> AsyncIterator[list[ResultRow]]:
    """Yield batches of all samples that have ended so far, in dataset order; a batch takes two or three statements."""
    library = LibraryCache()
    async with database.transaction() as connection:
        params, _ = try_decode_params((await connection.execute(PARAMS, {"job": job})).scalar_one(), "")
    extract = find_extractor(params)
    async for batch in samples.stream_with_outcomes(database, job):
        async with database.snapshot() as connection:
            # Load the model calls by item and repeat, in the order of the sample's requests.
            first, last = batch[0][0], batch[-1][0]
            place = {"first": first.index, "first_repeat": first.repeat, "last": last.index, "last_repeat": last.repeat}
            calls: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
            ids = (await connection.execute(SELECT_PLACE, {"job": job, **place})).scalars().all()
            async with show_archived(connection, job, ids):
                for row in await connection.execute(SELECT_CALL_RESULTS, {"job": job, "prompts": prompts, **place}):
                    calls[row.ordinal, row.repeat].append(row)
            requests = {row.request for rows in calls.values() for row in rows if row.role == "generate"}
            prompt_texts = await render_prompts(connection, library, requests) if prompts else {}
        yield [
            _make_result(row, outcome, calls[row.index, row.repeat], prompt_texts, extract) for row, outcome in batch
        ]


def _make_result(
    row: SampleRow, outcome: Outcome | None, calls: Sequence[Any], prompts: dict[bytes, str], extract: Extract
) -> ResultRow:
    said: list[tuple[str, bytes | None]] = []
    rated: list[tuple[str, int]] = []
    # Metrics rate documents as well, after the answer was written, or given.
    written = [place for place, call in enumerate(calls) if call.role == "generate"]
    measured = len(calls)
    if outcome is not None and outcome.metrics and outcome.refusal is None:
        measured = written[-1] if written else 0
    for place, call in enumerate(calls):
        reply = try_decode(call.reply, REPLY, "")[0]
        if isinstance(reply, Generated) and call.role == "generate":
            said.append((reply.text, call.request))
        if isinstance(reply, Rated):
            # The hash of the rated document; empty if the request names none or several.
            request = try_decode(call.request, Request, "")[0]
            if request is not None and request.template.partition("@")[0] in LABELS:
                continue
            value = request.values.get("document") if request is not None else None
            document = value.doc if isinstance(value, DocumentRef) else ""
            if place < measured or not document:
                rated.append((document, reply.rating))
    chosen = find_answering_text([each for each, _ in said], outcome, extract)
    asked = next((request for each, request in reversed(said) if each == chosen), None)
    return ResultRow(
        text=chosen,
        prompt=prompts.get(asked) if asked is not None else None,
        judged=tuple(document for document, _ in rated if document),
        ratings=tuple(rating for _, rating in rated),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in calls),
        completion_tokens=sum(call.completion_tokens or 0 for call in calls),
        seconds=round(sum(float(call.seconds or 0) for call in calls), 6),
        **msgspec.structs.asdict(row),
    )
