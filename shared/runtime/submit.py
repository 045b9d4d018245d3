"""Submit jobs: pin what they use and insert them with their first samples in one transaction."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.pipelines import registry
from shared.runtime import admission, ending, job_names
from shared.runtime.drafting import Draft, Drafting
from shared.runtime.submission import Submission
from shared.settings import Settings
from shared.storage import idempotency
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.telemetry import references, traces

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


async def submit(database: Database, settings: Settings, submission: Submission) -> uuid.UUID:
    """Insert the job without an idempotency key. See `submit_once` for errors."""
    return (await submit_once(database, settings, submission, None)).job


async def submit_once(
    database: Database, settings: Settings, submission: Submission, keyed: idempotency.KeyedRequest | None
) -> idempotency.Accepted:
    """Insert the job, or find the one that the same request created before.

    Raises:
        NotFound: no such dataset or corpus.
        Invalid: a field cannot be used; the message names it.
        Conflict: a job has this name already.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `idempotency.run_once` and `job_names.reserve`.
    """

    async def make() -> uuid.UUID:
        draft = await Drafting(connection, settings).draft(submission)
        return (await insert(connection, settings, [draft]))[0]

    async with database.transaction() as connection:
        accepted = await idempotency.run_once(connection, keyed, make)
    if not accepted.replayed:
        traces.link(references.make_job_ref(accepted.job))
        _log.info("job accepted", extra={"job_id": str(accepted.job), "pipeline": submission.pipeline})
    return accepted


async def insert(connection: AsyncConnection, settings: Settings, drafts: Sequence[Draft]) -> list[uuid.UUID]:
    """Insert the jobs and their first samples; return the jobs' ids in order.

    Raises:
        Conflict: a job has one of the names already.
        TooLarge, TooMany: more than the operator allows.
        InProgress: another request is taking one of the names.
    """
    await admission.admit(connection, settings.limits, drafts)
    turns = await admission.take_turns(connection, drafts)
    drafts = await _with_own_names(connection, drafts)
    rows = await to_thread.run_sync(_rows, drafts, turns)
    inserted = (await connection.execute(INSERT, {name: [row[name] for row in rows] for name in rows[0]})).all()
    calibrated = {row.id for row in inserted if registry.get(row.pipeline).prepare is not None}
    await connection.execute(INSERT_PREPARE, {"jobs": sorted(calibrated)})
    await ending.start_jobs(connection, sorted({row.id for row in inserted} - calibrated), None)
    return [row["public_id"] for row in rows]


async def _with_own_names(connection: AsyncConnection, drafts: Sequence[Draft]) -> list[Draft]:
    """Reserve the jobs' names. A requeued job gets the next free number; chats need no unique name."""
    named = [draft.submission for draft in drafts if not draft.submission.online]
    await job_names.reserve(connection, [each.name for each in named if each.requeued_from is None])
    given: dict[uuid.UUID, str] = {}
    for each in named:
        if each.requeued_from is not None:
            given[each.requeued_from] = await job_names.reserve_next(connection, each.name, given.values())
    return [_rename(draft, given) for draft in drafts]


def _rename(draft: Draft, given: Mapping[uuid.UUID, str]) -> Draft:
    source = draft.submission.requeued_from
    if source is None or source not in given:
        return draft
    return msgspec.structs.replace(draft, submission=msgspec.structs.replace(draft.submission, name=given[source]))


def _rows(drafts: Sequence[Draft], turns: Sequence[int]) -> list[dict[str, Any]]:
    """Build the rows to insert, in a thread because hashing a pipeline takes milliseconds."""
    return [_row(draft, turn) for draft, turn in zip(drafts, turns, strict=True)]


def _row(draft: Draft, turn: int) -> dict[str, Any]:
    submission = draft.submission
    copied = ("name", "pipeline", "repeats", "reuse", "rank", "online", "requeued_from", "experiment")
    return {
        "public_id": submission.job or uuid.uuid4(),
        "pipeline_hash": bytes.fromhex(registry.pipeline_hash(submission.pipeline)),
        "params": canonical.encode(submission.params),
        "dataset": draft.dataset,
        "corpus": draft.corpus,
        "pins": canonical.encode(draft.spec.binding.pins).decode(),
        "total": draft.samples,
        "metadata": canonical.encode(submission.metadata).decode(),
        "code": canonical.encode({**draft.code, "turn": turn}).decode(),
        **{field: getattr(submission, field) for field in copied},
    }
