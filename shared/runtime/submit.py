"""Submit a job: pin what it uses, insert it with its first samples, in one transaction. 202 means it is committed."""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.calls import Judge
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import Invalid, NotFound
from shared.pipelines import registry
from shared.pipelines.mathrag_gate import RUBRIC
from shared.provenance.code import accepting
from shared.runtime import admission, ending, models
from shared.runtime.binding import Binding, Pin, bind
from shared.runtime.jobs import JobSpec
from shared.settings import Settings
from shared.storage import idempotency
from shared.storage.database import Database
from shared.telemetry import references, traces

DATASET = text("SELECT id, items FROM datasets WHERE name = :name")
CORPUS = text("SELECT id FROM corpora WHERE name = :name")
INSERT = text("""
    INSERT INTO jobs (name, pipeline, pipeline_hash, params, dataset_id, corpus_id, pins, repeats, reuse, rank, total,
                      metadata, online, code, requeued_from, state)
    VALUES (:name, :pipeline, :pipeline_hash, :params, :dataset, :corpus, CAST(:pins AS jsonb), :repeats, :reuse,
            :rank, :total, CAST(:metadata AS jsonb), :online, CAST(:code AS jsonb),
            (SELECT id FROM jobs WHERE public_id = :requeued_from), 'preparing') RETURNING id, public_id""")
INSERT_PREPARE = text("INSERT INTO samples (job_id, kind, ordinal, repeat, state) VALUES (:job, 'prepare', 0, 0, 0)")

_log = logging.getLogger(__name__)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is asked for."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
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


async def submit(database: Database, settings: Settings, submission: Submission) -> uuid.UUID:
    """Insert the job, whatever was sent before."""
    return (await submit_once(database, settings, submission, None)).job


async def submit_once(
    database: Database, settings: Settings, submission: Submission, keyed: idempotency.Keyed | None
) -> idempotency.Accepted:
    """Insert the job, or find the one that the same request made before.

    Raises:
        NotFound: no such dataset or corpus.
        Invalid: a field cannot be used; the message names it.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `idempotency.once`.
    """
    async with database.transaction() as connection:
        accepted = await idempotency.once(connection, keyed, lambda: _insert(connection, settings, submission))
    if not accepted.replayed:
        traces.link(references.job(accepted.job))
        _log.info("job accepted", extra={"job_id": str(accepted.job), "pipeline": submission.pipeline})
    return accepted


async def draft(connection: AsyncConnection, settings: Settings, submission: Submission) -> tuple[JobSpec, int]:
    """The job as it would run, and how many samples it would have; it is not inserted.

    Raises:
        NotFound: no such dataset or corpus.
        Invalid: a field cannot be used; the message names it.
    """
    _pipeline(submission.pipeline)
    _, items = await _dataset(connection, submission.dataset)
    corpus = await _corpus(connection, submission.corpus)
    pins = await _pins(connection, submission, corpus, settings.roles)
    return _probe(submission, pins), items * submission.repeats


async def _insert(connection: AsyncConnection, settings: Settings, submission: Submission) -> uuid.UUID:
    """The job and its first samples; the operator's default models fill the roles that it does not name."""
    pipeline = _pipeline(submission.pipeline)
    dataset, items = await _dataset(connection, submission.dataset)
    await admission.admit(connection, settings.limits, items=items, repeats=submission.repeats)
    corpus = await _corpus(connection, submission.corpus)
    pins = await _pins(connection, submission, corpus, settings.roles)
    _probe(submission, pins)
    values = {
        "name": submission.name,
        "pipeline": submission.pipeline,
        "pipeline_hash": bytes.fromhex(registry.pipeline_hash(submission.pipeline)),
        "params": canonical.encode(submission.params),
        "dataset": dataset,
        "corpus": corpus,
        "pins": canonical.encode(pins).decode(),
        "repeats": submission.repeats,
        "reuse": submission.reuse,
        "rank": submission.rank,
        "total": items * submission.repeats,
        "metadata": canonical.encode(submission.metadata).decode(),
        "online": submission.online,
        "code": canonical.encode(await accepting(connection, settings, corpus, submission.configuration)).decode(),
        "requeued_from": submission.requeued_from,
    }
    row = (await connection.execute(INSERT, values)).one()
    if pipeline.prepare is None:
        await ending.run(connection, row.id, None)
    else:
        await connection.execute(INSERT_PREPARE, {"job": row.id})
    return uuid.UUID(str(row.public_id))


def _pipeline(name: str) -> registry.Registered:
    try:
        return registry.get(name)
    except registry.UnknownPipeline as error:
        raise Invalid(f"`pipeline`: {error}") from error


async def _dataset(connection: AsyncConnection, name: str) -> tuple[int, int]:
    row = (await connection.execute(DATASET, {"name": name})).first()
    if row is None:
        raise NotFound(f"no dataset {name!r}", hint="mathrag dataset list")
    if row.items == 0:
        raise Invalid(f"`dataset`: {name!r} has no items")
    return row.id, row.items


async def _corpus(connection: AsyncConnection, name: str | None) -> int | None:
    if name is None:
        return None
    corpus: int | None = (await connection.execute(CORPUS, {"name": name})).scalar()
    if corpus is None:
        raise NotFound(f"no corpus {name!r}", hint="mathrag corpus list")
    return corpus


async def _pins(
    connection: AsyncConnection, submission: Submission, corpus: int | None, roles: Mapping[Any, str]
) -> dict[str, Pin]:
    unknown = submission.models.keys() - roles.keys()
    if unknown:
        raise Invalid(f"`models`: no role {min(unknown)!r}; the roles are {', '.join(sorted(roles))}")
    pins = {**await models.pin_built_in(connection), "rerank": await models.pin_reranker(connection)}
    for role, name in {**roles, **submission.models}.items():
        pins[role] = await models.pin(connection, role, name)
    if corpus is not None and submission.corpus is not None:
        pins |= await models.pin_indexes(connection, corpus, submission.corpus)
    return pins | await _fallback(connection, submission.params.crag.fallback)


async def _fallback(connection: AsyncConnection, corpus: str) -> dict[str, Pin]:
    """The words' index of the corpus that is searched where the first one fails."""
    found = await _corpus(connection, corpus or None)
    return {} if found is None else {"fallback": (await models.pin_indexes(connection, found, corpus))["sparse"]}


def _probe(submission: Submission, pins: dict[str, Pin]) -> JobSpec:
    """Bind the pipeline's first calls: a job that cannot start is refused, not failed a sample at a time."""
    params = submission.params
    job = JobSpec(
        id=0, pipeline=submission.pipeline, rank=0, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=pins, params=params),
    )  # fmt: skip
    item = Item(ordinal=0, question="?")
    prepare = registry.get(submission.pipeline).prepare
    replay = job.start(item, 0, {}) if prepare is None else job.prepare([item], {})
    # The judge is asked later, but what is wrong with its anchors can be said now.
    anchored = (Judge(rubric=RUBRIC, document=""),) if params.anchors else ()
    try:
        for call in (*replay.calls, *anchored):
            bind(call, job.binding, 0)
    except KeyError as missing:
        raise Invalid(f"`corpus`: pipeline {submission.pipeline!r} needs one ({missing} is not pinned)") from missing
    except ValueError as error:
        raise Invalid(f"`params`: {error}") from error
    return job
