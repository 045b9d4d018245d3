"""Submit jobs: pin what they use, insert them with their first samples, in one transaction. 202 means: committed."""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.calls import Judge
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import Invalid
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin, RepeatedDraw, bind
from shared.pipelines.mathrag_gate import RUBRIC
from shared.rag.graders import marking
from shared.runtime import admission, ending, job_names, models, thresholds
from shared.runtime.acceptance import accepting
from shared.runtime.jobs import JobSpec
from shared.runtime.price import dry_run
from shared.settings import Settings
from shared.storage import idempotency
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.unknown import not_found
from shared.telemetry import references, traces

DATASET = text("SELECT id, items, grader FROM datasets WHERE name = :name")
CORPUS = text("SELECT id FROM corpora WHERE name = :name")
CORPUS_SIZE = text("SELECT documents FROM corpora WHERE id = :corpus")
INSERT = text("""
    INSERT INTO jobs (public_id, name, pipeline, pipeline_hash, params, dataset_id, corpus_id, pins, repeats, reuse,
                      rank, total, metadata, online, code, requeued_from, experiment_id, state)
    SELECT u.public_id, u.name, u.pipeline, u.pipeline_hash, u.params, u.dataset, u.corpus, CAST(u.pins AS jsonb),
        u.repeats, u.reuse, u.rank, u.total, CAST(u.metadata AS jsonb), u.online, CAST(u.code AS jsonb),
        (SELECT id FROM jobs r WHERE r.public_id = u.requeued_from), u.experiment, 'preparing'
    FROM unnest(CAST(:public_id AS uuid[]), CAST(:name AS text[]), CAST(:pipeline AS text[]),
        CAST(:pipeline_hash AS bytea[]), CAST(:params AS bytea[]), CAST(:dataset AS integer[]),
        CAST(:corpus AS integer[]), CAST(:pins AS text[]), CAST(:repeats AS smallint[]), CAST(:reuse AS text[]),
        CAST(:rank AS smallint[]), CAST(:total AS integer[]), CAST(:metadata AS text[]), CAST(:online AS boolean[]),
        CAST(:code AS text[]), CAST(:requeued_from AS uuid[]), CAST(:experiment AS integer[])) WITH ORDINALITY
        u(public_id, name, pipeline, pipeline_hash, params, dataset, corpus, pins, repeats, reuse, rank, total,
          metadata, online, code, requeued_from, experiment, place)
    ORDER BY u.place RETURNING id, pipeline""")
INSERT_PREPARE = sql("""
    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT id, 'prepare', 0, 0, {READY} FROM unnest(CAST(:jobs AS bigint[])) j(id) ORDER BY id""")

_log = logging.getLogger(__name__)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is asked for."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    """Only the first so many items of the dataset; None: all."""
    repeats: int = 1
    reuse: str = "all"
    """"all" replies of other jobs, or "none"."""
    params: Params = Params()
    configuration: int | None = None
    """Version of the configuration that filled in what was not named; None: nothing had to be."""
    models: Mapping[str, str] = {}
    """Model names by role; the operator's defaults fill the rest."""
    rank: int = 100
    metadata: Mapping[str, str] = {}
    """What the submitter wants to find again; never read by the runtime."""
    online: bool = False
    """One question that somebody waits for: not in the list of jobs."""
    requeued_from: uuid.UUID | None = None
    """The ended job that is done again."""
    experiment: int | None = None
    """Row id of the experiment that it belongs to."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could be inserted: all that it names is there."""

    submission: Submission
    dataset: int
    corpus: int | None
    items: int
    """That are asked, of the dataset's."""
    spec: JobSpec
    """As it would run."""
    code: dict[str, Any]
    """What accepted it, and the submission's limit; kept in `jobs.code`."""

    @property
    def samples(self) -> int:
        """How many it would have."""
        return self.items * self.submission.repeats


async def submit(database: Database, settings: Settings, submission: Submission) -> uuid.UUID:
    """Insert the job, whatever was sent before. Errors: see `submit_once`."""
    return (await submit_once(database, settings, submission, None)).job


async def submit_once(
    database: Database, settings: Settings, submission: Submission, keyed: idempotency.Keyed | None
) -> idempotency.Accepted:
    """Insert the job, or find the one that the same request made before.

    Raises:
        NotFound: no such dataset or corpus.
        Invalid: a field cannot be used; the message names it.
        Conflict: a job has this name already.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `idempotency.once` and `job_names.reserve`.
    """

    async def make() -> uuid.UUID:
        draft = await Drafting(connection, settings).draft(submission)
        return (await insert(connection, settings, [draft]))[0]

    async with database.transaction() as connection:
        accepted = await idempotency.once(connection, keyed, make)
    if not accepted.replayed:
        traces.link(references.job(accepted.job))
        _log.info("job accepted", extra={"job_id": str(accepted.job), "pipeline": submission.pipeline})
    return accepted


class Drafting:
    """Looks up what jobs name, each thing once however many jobs name it; nothing is inserted."""

    def __init__(self, connection: AsyncConnection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[bytes, Any] = {}

    async def draft(self, submission: Submission) -> Draft:
        """The job as it would run; the operator's default models fill the roles that it does not name.

        Raises:
            NotFound: no such dataset or corpus.
            Invalid: a field cannot be used; the message names it.
        """
        pipeline = _pipeline(submission.pipeline)
        dataset, items, grader = await self._once(_dataset, submission.dataset)
        submission = _with_grader(submission, grader)
        items = items if submission.limit is None else min(items, submission.limit)
        corpus = await self._once(_corpus, submission.corpus)
        pins = await self._once(_pins, submission.models, corpus, submission.corpus, self._settings.roles)
        pins = pins | await self._once(_fallback, submission.params.crag.fallback)
        pins = pins | await self._once(_grader, submission.params.grading.grader, "judge" in pins)
        if submission.corpus is not None and not pipeline.ignored("crag.similarity"):
            crag = await self._once(thresholds.pinned, submission.params.crag, submission.corpus)
            params = msgspec.structs.replace(submission.params, crag=crag)
            submission = msgspec.structs.replace(submission, params=params)
        # An experiment has a thousand of these, and the schedulers share this event loop.
        spec = await to_thread.run_sync(_probe, submission, pins)
        if pipeline.prepare is not None and corpus is not None:
            admission.check_calibration(submission.params, items, await self._once(_corpus_size, corpus))
        code = await self._once(accepting, self._settings, corpus, submission.configuration)
        asked = {} if submission.limit is None else {"limit": submission.limit}
        return Draft(
            submission=submission, dataset=dataset, corpus=corpus, items=items, spec=spec, code={**code, **asked}
        )

    async def _once(self, look_up: Callable[..., Awaitable[Any]], *named: Any) -> Any:
        key = canonical.encode([look_up.__name__, *(each for each in named if each is not self._settings)])
        if key not in self._known:
            self._known[key] = await look_up(self._connection, *named)
        return self._known[key]


async def insert(connection: AsyncConnection, settings: Settings, drafts: Sequence[Draft]) -> list[uuid.UUID]:
    """The jobs and their first samples; the jobs' ids, in their order.

    Raises:
        Conflict: a job has one of the names already.
        TooLarge, TooMany: more than the operator allows.
        InProgress: another request is taking one of the names.
    """
    await admission.admit(connection, settings.limits, [draft.samples for draft in drafts])
    drafts = await _with_own_names(connection, drafts)
    rows = await to_thread.run_sync(_rows, drafts)
    inserted = (await connection.execute(INSERT, {name: [row[name] for row in rows] for name in rows[0]})).all()
    calibrated = {row.id for row in inserted if _pipeline(row.pipeline).prepare is not None}
    await connection.execute(INSERT_PREPARE, {"jobs": sorted(calibrated)})
    await ending.run(connection, sorted({row.id for row in inserted} - calibrated), None)
    return [row["public_id"] for row in rows]


async def _with_own_names(connection: AsyncConnection, drafts: Sequence[Draft]) -> list[Draft]:
    """A requeued job takes the next number that is free; a chat needs no name of its own."""
    named = [draft.submission for draft in drafts if not draft.submission.online]
    await job_names.reserve(connection, [each.name for each in named if each.requeued_from is None])
    given: dict[uuid.UUID, str] = {}
    for each in named:
        if each.requeued_from is not None:
            given[each.requeued_from] = await job_names.reserve_next(connection, each.name, given.values())
    return [_renamed(draft, given) for draft in drafts]


def _renamed(draft: Draft, given: Mapping[uuid.UUID, str]) -> Draft:
    source = draft.submission.requeued_from
    if source is None or source not in given:
        return draft
    return msgspec.structs.replace(draft, submission=msgspec.structs.replace(draft.submission, name=given[source]))


def _rows(drafts: Sequence[Draft]) -> list[dict[str, Any]]:
    """In a thread: hashing a pipeline takes milliseconds."""
    return [_row(draft) for draft in drafts]


def _row(draft: Draft) -> dict[str, Any]:
    submission = draft.submission
    copied = ("name", "pipeline", "repeats", "reuse", "rank", "online", "requeued_from", "experiment")
    return {
        "public_id": uuid.uuid4(),
        "pipeline_hash": bytes.fromhex(registry.pipeline_hash(submission.pipeline)),
        "params": canonical.encode(submission.params),
        "dataset": draft.dataset,
        "corpus": draft.corpus,
        "pins": canonical.encode(draft.spec.binding.pins).decode(),
        "total": draft.samples,
        "metadata": canonical.encode(submission.metadata).decode(),
        "code": canonical.encode(draft.code).decode(),
        **{field: getattr(submission, field) for field in copied},
    }


def _pipeline(name: str) -> registry.Registered:
    try:
        return registry.get(name)
    except registry.UnknownPipeline as error:
        hint = suggestions.hint(name, registry.names(), "mathrag pipeline list")
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error


async def _dataset(connection: AsyncConnection, name: str) -> tuple[int, int, str | None]:
    row = (await connection.execute(DATASET, {"name": name})).first()
    if row is None:
        raise await not_found(connection, "dataset", name)
    if row.items == 0:
        raise Invalid(f"`dataset`: {name!r} has no items")
    return row.id, row.items, row.grader


async def _corpus(connection: AsyncConnection, name: str | None) -> int | None:
    if name is None:
        return None
    corpus: int | None = (await connection.execute(CORPUS, {"name": name})).scalar()
    if corpus is None:
        raise await not_found(connection, "corpus", name)
    return corpus


async def _corpus_size(connection: AsyncConnection, corpus: int) -> int:
    return int((await connection.execute(CORPUS_SIZE, {"corpus": corpus})).scalar_one())


async def _pins(
    connection: AsyncConnection,
    named: Mapping[str, str],
    corpus: int | None,
    corpus_name: str | None,
    roles: Mapping[Any, str],
) -> dict[str, Pin]:
    if unknown := sorted(named.keys() - roles.keys()):
        near = suggestions.nearest(unknown[0], roles)
        message = f"`models`: no role {unknown[0]!r}; the roles are {', '.join(sorted(roles))}"
        raise Invalid(message, hint=near and f"did you mean {near!r}?")
    pins = {**await models.pin_built_in(connection), "rerank": await models.pin_reranker(connection)}
    for role, name in {**roles, **named}.items():
        pins[role] = await models.pin(connection, role, name)
    if corpus is not None and corpus_name is not None:
        pins |= await models.pin_indexes(connection, corpus, corpus_name)
    return pins


async def _fallback(connection: AsyncConnection, corpus: str) -> dict[str, Pin]:
    """The words' index of the corpus that is searched where the first one fails."""
    found = await _corpus(connection, corpus or None)
    return {} if found is None else {"fallback": (await models.pin_indexes(connection, found, corpus))["sparse"]}


def _with_grader(submission: Submission, declared: str | None) -> Submission:
    """With the dataset's grader, where it declares one and the job names none: the job keeps what it was graded by."""
    params = submission.params
    if params.grading.grader or not declared:
        return submission
    grading = msgspec.structs.replace(params.grading, grader=declared)
    return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, grading=grading))


async def _grader(connection: AsyncConnection, name: str, has_judge: bool) -> dict[str, Pin]:  # noqa: FBT001 - looked up by position
    if name == "rubric" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or choose another grader"
        raise Invalid("`params.grading.grader`: `rubric` needs a judge model, and there is none", hint=hint)
    return {"grade": await models.pin_grader(connection, marking(name))}


def _probe(submission: Submission, pins: dict[str, Pin]) -> JobSpec:
    """Bind the calls of a dry run: a job that cannot run is refused, not failed a sample at a time."""
    params = submission.params
    job = JobSpec(
        id=0, pipeline=submission.pipeline, rank=0, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=pins, params=params, nonce=submission.name if submission.reuse == "none" else ""),
    )  # fmt: skip
    # Whether the judge is asked or not, what is wrong with its anchors can be said now.
    anchored = (Judge(rubric=RUBRIC, document=""),) if params.anchors else ()
    try:
        for call in anchored:
            bind(call, job.binding, 0)
        for _ in dry_run(job, Item(ordinal=0, question="?")):
            pass
    except KeyError as missing:
        raise Invalid(f"`corpus`: pipeline {submission.pipeline!r} needs one ({missing} is not pinned)") from missing
    except RepeatedDraw as error:
        raise Invalid(f"`pipeline`: {submission.pipeline!r}: {error}") from error
    except ValueError as error:
        raise Invalid(f"`params`: {error}") from error
    return job
