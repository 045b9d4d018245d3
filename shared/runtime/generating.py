"""Generate datasets: draw passages of a corpus, let a job write and check questions, and store those that are kept.

The dataset is an ordinary one. A request is repeated until it is ready: the first one starts the job, those in between
find it running, and the one after its end stores the dataset.
"""

import re
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, Unreadable
from mathrag.messages import format_count
from shared import canonical
from shared.pipelines.write_questions import KEPT, REASONS, WRITE_QUESTIONS
from shared.rag.text import ALIKE, CJK, are_alike, extract_terms, make_shingles
from shared.runtime import lifecycle
from shared.runtime.submit import Submission, draft_and_insert
from shared.samples import DatasetItem, Outcome, Passages
from shared.settings import Settings
from shared.storage import corpora, datasets
from shared.storage.database import Database, check_name, copy, try_decode

MOST_CANDIDATES = 2_000
MOST_STYLES = 100
LEAST_CHARACTERS = 200
"""Shorter passages, such as headings, have nothing to ask about."""
MOST_CHARACTERS = 4_000
"""In English about 1,300 tokens: two of them and the instructions fit into a context of 4,096 tokens."""
POOL = 2_000
"""Passages among which those of a two-hop question are paired."""
RESERVE = 500
"""Passages that are drawn in place of those that repeat others."""
SHARED_BY = (2, 5)
"""Fewest and most passages of the pool that have the term which links two of them."""
DUPLICATE = "duplicate"
"""Of a question that all but repeats an earlier one."""
# Every document takes its turn, so that a long one does not fill the dataset; the passages of a file are one document.
PASSAGES = text("""
    WITH passages AS (
        SELECT DISTINCT ON (c.hash) c.ordinal, c.external_id, c.hash,
            COALESCE(c.meta ->> 'path', c.external_id) AS source
        FROM corpus_documents c JOIN corpora k ON k.id = c.corpus_id JOIN documents d ON d.hash = c.hash
        WHERE k.name = :corpus AND length(d.problem) + length(d.body) BETWEEN :least AND :most
        ORDER BY c.hash, c.ordinal),
    turns AS (
        SELECT *, row_number() OVER (
            PARTITION BY source ORDER BY sha256(CAST(:seed AS bytea) || hash), ordinal) AS turn
        FROM passages)
    SELECT t.external_id AS id, t.source, encode(t.hash, 'hex') AS hash,
        d.problem || CASE d.problem WHEN '' THEN '' ELSE E'\\n' END || d.body AS text
    FROM turns t JOIN documents d ON d.hash = t.hash
    ORDER BY t.turn, sha256(CAST(:seed AS bytea) || convert_to(t.source, 'UTF8')), t.ordinal LIMIT :n""")
# A job of the same request, if there is one; else a live one of another request, which has taken the name.
JOB = text("""
    SELECT id, public_id::text AS job, name, state, total, metadata ->> 'request' AS request
    FROM jobs WHERE pipeline = 'write-questions' AND metadata ->> 'dataset' = :name
        AND (ended_at IS NULL OR state = 'completed')
    ORDER BY metadata ->> 'request' = :request DESC, ended_at IS NULL DESC, id DESC LIMIT 1""")
LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 7335))")
DATASET = text("SELECT id FROM datasets WHERE name = :name")
WRITTEN = text("""
    SELECT s.ordinal, o.outcome FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' ORDER BY s.ordinal""")
IDS = text("""
    SELECT encode(c.hash, 'hex') AS hash, c.external_id AS id
    FROM corpus_documents c JOIN corpora k ON k.id = c.corpus_id
    WHERE k.name = :corpus AND c.hash = ANY(:hashes) ORDER BY c.ordinal""")
_LINKING = re.compile(f"[{CJK}]{{2}}|[^\\W\\d_]{{4,}}")
"""A term that may link two passages: a word of four letters, or a pair of Chinese or Japanese characters."""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a dataset."""

    name: str
    corpus: str
    size: int
    candidates: int
    """Questions to write, of which at most `size` are kept."""
    hops: tuple[Literal[1, 2], ...] = (1,)
    """Passages that a question needs; with both, candidates alternate."""
    seed: int = 0
    styles: tuple[str, ...] = ()
    """How to word the questions; each candidate is given one of them in turn."""
    grader: str = "contains"
    models: Mapping[str, str] = {}
    submitted_by: str | None = None

    @property
    def identity(self) -> str:
        """Return what tells two requests for one name apart."""
        return canonical.digest({**msgspec.to_builtins(self), "submitted_by": None}).hex()[:16]


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The generation of a dataset."""

    name: str
    """Name of the dataset."""
    state: Literal["writing", "ready"]
    """`writing` while the job runs; `ready` once the dataset is stored."""
    job: str
    """Id of the job that writes the questions."""
    candidates: int
    """Maximum number of questions that the job writes."""
    items: int = 0
    """Number of questions in the dataset; 0 while they are being written."""
    left_out: dict[str, int] = {}
    """Number of candidates that failed a check, by check."""
    failed: int = 0
    """Number of candidates whose passages were too long for the judge model, or with a failed call."""
    spare: int = 0
    """Number of candidates that passed every check but were not needed."""
    guessable: int = 0
    """Number of items that the judge model answers without any document; their `subject` says so."""
    found_elsewhere: int = 0
    """Number of items whose answer also occurs in a document that is not named as relevant, so that recall is
    understated."""
    overlap: float | None = None
    """Mean share of a question's terms that occur in its quotations; values near 1 favour search by words. Null without
    questions."""


class Passage(NamedTuple):
    """A passage that was drawn."""

    id: str
    source: str
    """The document that it is a part of."""
    hash: str
    text: str


async def generate(database: Database, settings: Settings, request: GenerationRequest) -> tuple[Generation, bool]:
    """Start to generate the dataset, say that it is being written, or store it; return whether this stored it.

    Raises:
        NotFound: the corpus does not exist.
        Invalid: the name or a model cannot be used, or the corpus has too few passages.
        Conflict: the name is taken, or no question passed the checks.
        Unreadable: this release cannot read what another one wrote.
        TooLarge, TooMany: more than the operator allows.
    """
    check_name(request.name)
    await corpora.get(database, request.corpus)
    async with database.transaction() as connection:
        job = await _find_job(connection, request)
    if job is None:
        candidates = await _draw(database, request)
        if not candidates:
            wanted = f"passages of {LEAST_CHARACTERS} to {MOST_CHARACTERS:,} characters"
            if request.hops == (2,):
                wanted = f"two {wanted} that are of different documents and share a rare word"
            problem = f"`corpus`: {request.corpus!r} has no {wanted}"
            raise Invalid(problem, hint=f"see its documents: mathrag corpus preview {request.corpus}")
        job = await _start(database, settings, request, candidates)
    if job["state"] == "completed":
        return await _store(database, request, job)
    return Generation(name=request.name, state="writing", job=job["job"], candidates=job["total"]), False


async def _find_job(connection: AsyncConnection, request: GenerationRequest) -> RowMapping | None:
    """Find the job that writes, or has written, these questions.

    Raises:
        Conflict: another request has taken the name.
    """
    values = {"name": request.name, "request": request.identity}
    job = (await connection.execute(JOB, values)).mappings().first()
    if job is not None and job["request"] == request.identity:
        return job
    if job is not None and job["state"] != "completed":
        problem = f"`name`: job {job['name']} already writes its questions, with other settings"
        raise Conflict(problem, hint="choose another name, or cancel that job: mathrag job cancel")
    if (await connection.execute(DATASET, {"name": request.name})).scalar() is not None:
        problem = f"`name`: dataset {request.name!r} exists already, and no job of these settings made it"
        raise Conflict(problem, hint="choose another name")
    return None


async def _start(
    database: Database, settings: Settings, request: GenerationRequest, candidates: Sequence[Sequence[Passage]]
) -> RowMapping:
    """Store the passages of each candidate, and insert the job that writes its question, unless another request did."""
    names = [" + ".join(passage.id for passage in each) for each in candidates]
    dataset = await datasets.provide_unlisted(database, "passages", names)
    job, styles = uuid.uuid4(), request.styles or ("",)
    async with database.transaction() as connection:
        await connection.execute(LOCK, {"name": request.name})
        if (there := await _find_job(connection, request)) is not None:
            return there
        name = await lifecycle.reserve_next(connection, f"generate-{request.name}"[: lifecycle.LONGEST], ())
        rows = [
            Passages(documents=tuple(passage.hash for passage in each), style=styles[ordinal % len(styles)])
            for ordinal, each in enumerate(candidates)
        ]
        await copy(connection, "given", ("job", "ordinal", "repeat", "content"), [
            (job, ordinal, 0, canonical.encode(row)) for ordinal, row in enumerate(rows)
        ])  # fmt: skip
        submission = Submission(
            name=name, dataset=dataset, corpus=request.corpus, pipeline=WRITE_QUESTIONS, models=request.models,
            metadata={"dataset": request.name, "request": request.identity}, submitted_by=request.submitted_by, job=job,
        )  # fmt: skip
        await draft_and_insert(connection, settings, [submission])
        return (await connection.execute(JOB, {"name": request.name, "request": request.identity})).mappings().one()


# Draw the passages: evenly over documents, in an order that the seed decides, and none that all but repeats another.


async def _draw(database: Database, request: GenerationRequest) -> list[tuple[Passage, ...]]:
    """Return the passages of each candidate, at most as many candidates as are wanted."""
    wanted = request.candidates
    drawn_at_most = max(min(2 * wanted, wanted + RESERVE), POOL if 2 in request.hops else 0)
    values = {
        "corpus": request.corpus, "least": LEAST_CHARACTERS, "most": MOST_CHARACTERS,
        "seed": canonical.digest(["questions", request.seed]), "n": drawn_at_most,
    }  # fmt: skip
    async with database.transaction() as connection:
        drawn = [Passage(**row) for row in (await connection.execute(PASSAGES, values)).mappings()]
    return await to_thread.run_sync(_choose, drawn, request.hops, wanted)


def _choose(drawn: Sequence[Passage], hops: Sequence[int], wanted: int) -> list[tuple[Passage, ...]]:
    apart = [drawn[place] for place in find_distinct([passage.text for passage in drawn])]
    singles = [(each,) for each in apart] if 1 in hops else []
    pairs = _pair_passages(apart) if 2 in hops else []
    mixed = [each for both in zip_longest(singles, pairs) for each in both if each is not None]
    return mixed[:wanted]


def find_distinct(texts: Sequence[str]) -> list[int]:
    """Return the places of the texts that do not all but repeat an earlier one.

    Similar texts share a shingle among the rarest fifth of each (prefix filtering: Bayardo et al. 2007), so only
    those that share one are compared.
    """
    every = [make_shingles(extract_terms(text)) for text in texts]
    often = Counter(shingle for shingles in every for shingle in shingles)
    having: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    distinct: list[int] = []
    for place, shingles in enumerate(every):
        fewest = len(shingles) - int(ALIKE * len(shingles)) + 1
        rare = sorted(shingles, key=lambda shingle: (often[shingle], shingle))[:fewest]
        others = {other for shingle in rare for other in having[shingle]}
        if not any(are_alike(shingles, every[other]) for other in others):
            distinct.append(place)
            for shingle in rare:
                having[shingle].append(place)
    return distinct


def _pair_passages(passages: Sequence[Passage]) -> list[tuple[Passage, ...]]:
    """Pair passages of different documents that share a term which few others have; each passage is in one pair."""
    terms = [
        dict.fromkeys(term for term in extract_terms(passage.text) if _LINKING.fullmatch(term)) for passage in passages
    ]
    having: defaultdict[str, list[int]] = defaultdict(list)
    for place, found in enumerate(terms):
        for term in found:
            having[term].append(place)
    pairs: list[tuple[Passage, ...]] = []
    used: set[int] = set()
    for place, passage in enumerate(passages):
        if place in used:
            continue
        linking = [term for term in terms[place] if SHARED_BY[0] <= len(having[term]) <= SHARED_BY[1]]
        others = (
            other
            for term in sorted(linking, key=lambda term: (len(having[term]), term))
            for other in having[term]
            if other not in used and passages[other].source != passage.source
        )
        if (other := next(others, None)) is not None:
            used |= {place, other}
            pairs.append((passage, passages[other]))
    return pairs


# Store the dataset of a job that has ended.


async def _store(database: Database, request: GenerationRequest, job: RowMapping) -> tuple[Generation, bool]:
    async with database.transaction() as connection:
        rows = (await connection.execute(WRITTEN, {"job": job["id"]})).all()
    kept, left_out = await to_thread.run_sync(_choose_kept, [(row.ordinal, row.outcome) for row in rows], job["name"])
    used, failed = kept[: request.size], sum(row.outcome is None for row in rows)
    if not used:
        reasons = left_out | ({"failed": failed} if failed else {})
        raise Conflict(
            f"no question passed the checks: of {len(rows)} candidates,"
            f" {', '.join(f'{count} {reason}' for reason, count in reasons.items())}",
            hint=f"see the texts of the model: mathrag sample list {job['name']}; a larger judge model helps",
        )
    ids = await _load_ids(database, request.corpus, used)
    items = [_make_item(each, ids, request) for each in used]

    async def batches() -> AsyncIterator[list[DatasetItem]]:
        yield items

    created = await datasets.create(database, request.name, batches(), request.grader)
    details = [each.detail for each in used]
    generation = Generation(
        name=request.name, state="ready", job=job["job"], candidates=job["total"], items=len(used), left_out=left_out,
        failed=failed, spare=len(kept) - len(used),
        guessable=sum(bool(each["guessable"]) for each in details),
        found_elsewhere=sum(bool(each["also_in"]) for each in details),
        overlap=sum(float(each["overlap"]) for each in details) / len(details),
    )  # fmt: skip
    return generation, created.new


class _Written(NamedTuple):
    """A candidate whose sample has ended."""

    ordinal: int
    reason: str
    detail: Mapping[str, Any]
    documents: tuple[str, ...]


def _read_written(rows: Sequence[tuple[int, bytes | None]], job: str) -> list[_Written]:
    written = []
    for ordinal, raw in rows:
        if raw is None:
            continue
        outcome, problem = try_decode(raw, Outcome, f"the outcome of item {ordinal} of job {job}")
        if outcome is None:
            raise Unreadable(str(problem), hint="generate the dataset with the release that ran the job")
        decision = outcome.trace.decisions[0]
        written.append(_Written(ordinal, decision.action, decision.detail, outcome.context))
    return written


def _choose_kept(rows: Sequence[tuple[int, bytes | None]], job: str) -> tuple[list[_Written], dict[str, int]]:
    """Return the kept questions without those that all but repeat an earlier one, and how many were left out why."""
    written = _read_written(rows, job)
    passed = [each for each in written if each.reason == KEPT]
    kept = [passed[place] for place in find_distinct([each.detail["question"] for each in passed])]
    reasons = Counter(each.reason for each in written)
    reasons[DUPLICATE] = len(passed) - len(kept)
    return kept, {reason: reasons[reason] for reason in (*REASONS, DUPLICATE) if reasons[reason]}


async def _load_ids(database: Database, corpus: str, used: Iterable[_Written]) -> Mapping[str, list[str]]:
    """Load the ids of the passages by hash; a corpus may hold the same content under several."""
    hashes = sorted({bytes.fromhex(hash_) for each in used for hash_ in each.documents})
    ids: defaultdict[str, list[str]] = defaultdict(list)
    async with database.transaction() as connection:
        for row in await connection.execute(IDS, {"corpus": corpus, "hashes": hashes}):
            ids[row.hash].append(row.id)
    return ids


def _make_item(each: _Written, ids: Mapping[str, list[str]], request: GenerationRequest) -> DatasetItem:
    return DatasetItem(
        question=each.detail["question"],
        gold=each.detail["answer"],
        gold_documents={id_: 1 for hash_ in each.documents for id_ in ids[hash_]},
        subject="guessable" if each.detail["guessable"] else "needs its documents",
        level=format_count(len(each.documents), "hop") if len(request.hops) > 1 else None,
        # The number of the sample that wrote it, with its calls and quotations.
        custom_id=f"{request.name}/{each.ordinal}",
    )
