"""Jobs as users see them: found by id, prefix or name, and counted from their samples and calls."""

import re
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import CALL_KINDS
from shared.contracts.params import Params
from shared.contracts.samples import GateDecision
from shared.errors import Conflict
from shared.storage import awaited_outages, pace, unserved_models
from shared.storage.awaited_outages import Waiting
from shared.storage.database import Database
from shared.storage.decoding import try_decode, try_decode_params
from shared.storage.names import is_usable
from shared.storage.pace import TimeLeft
from shared.storage.sql import fill_names, sql
from shared.storage.states import TERMINAL
from shared.storage.unknown import make_not_found

# One row per job with its samples counted by state; (job_id, state) is an index.
JOBS = fill_names("""
    SELECT j.id, j.public_id, j.name, j.pipeline, d.name AS dataset, k.name AS corpus, j.repeats, j.reuse, j.state,
        CAST(j.code ->> 'limit' AS integer) AS "limit", j.code ->> 'submitted_by' AS submitted_by,
        j.reason, j.params, j.prepared, j.rank, j.metadata, j.total, j.version, j.created_at, j.running_at, j.ended_at,
        encode(j.chain, 'hex') AS chain,
        r.public_id AS requeued_from, x.name AS experiment, n.completed, n.failed, n.cancelled,
        (SELECT count(*) FROM samples s WHERE s.job_id = j.id AND s.kind = 'item' AND s.state = {FAILED}
            AND s.failure = 'unparsed') AS unparsed,
        (SELECT jsonb_object_agg(e.state, e.at) FROM (
            SELECT state, min(at) AS at FROM job_events WHERE job_id = j.id GROUP BY state) e) AS reached
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    LEFT JOIN jobs r ON r.id = j.requeued_from LEFT JOIN experiments x ON x.id = j.experiment_id
    CROSS JOIN LATERAL (
        SELECT {COUNTS_BY_END} FROM samples s WHERE s.job_id = j.id AND s.kind = 'item') n""")
ONE = text(f"{JOBS} WHERE j.id = :job")
SEVERAL = text(f"{JOBS} WHERE j.id = ANY(:jobs)")
ROWS = text("SELECT id, public_id FROM jobs WHERE public_id = ANY(:jobs)")
BY_NAME = text("SELECT id, public_id FROM jobs WHERE name = :name AND NOT online ORDER BY id DESC LIMIT 10")
BY_RANGE = text("SELECT id, public_id FROM jobs WHERE public_id BETWEEN :low AND :high ORDER BY public_id LIMIT 10")
STAGES = sql("""
    SELECT c.role, count(*) AS total, count(*) FILTER (WHERE c.failed OR a.id IS NOT NULL) AS done
    FROM ({CALLS_OF_JOB}) mine JOIN calls c ON c.id = mine.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
    GROUP BY c.role""")
LIVE = text("SELECT public_id FROM jobs WHERE ended_at IS NULL AND NOT online ORDER BY rank, id LIMIT :n")
ENDED = text("SELECT ended_at IS NOT NULL FROM jobs WHERE id = :job")
PUBLIC_ID = text("SELECT public_id FROM jobs WHERE id = :job")
VERSION = text("SELECT version FROM jobs WHERE id = :job")
SUBMITTERS = text("""
    SELECT DISTINCT code ->> 'submitted_by' FROM jobs WHERE public_id = :job OR experiment_id = :experiment""")
_HEX = re.compile(r"[0-9a-f]{4,32}")


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Samples by state: completed, failed, cancelled and in_progress add up to `total`."""

    total: int
    completed: int
    failed: int
    cancelled: int
    in_progress: int
    unparsed: int
    """Failed samples whose failure is a model reply that could not be parsed."""


class StageCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role that the job has requested so far."""

    done: int
    total: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's decision without its score vectors, which the report has."""

    strategy: str
    reason: str
    tau: float
    rho: float | None
    low: float | None
    high: float | None
    pairs: int
    asked: int
    unparsed: int


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as users see it."""

    id: uuid.UUID
    name: str
    state: str
    pipeline: str
    dataset: str
    corpus: str | None
    repeats: int
    reuse: str
    request_counts: RequestCounts
    params: Params | None
    """Null if this release cannot read them; see `unreadable`."""
    rank: int
    """Calls of jobs with smaller ranks are claimed sooner."""
    metadata: dict[str, str]
    version: int
    """Grows with every change of state, name, rank or metadata."""
    created_at: datetime
    running_at: datetime | None
    ended_at: datetime | None
    reached: dict[str, datetime]
    """When the job first entered each state."""
    eta_seconds: int | None
    """Estimate as of the last ended sample; null without an estimate and in lists."""
    requeued_from: uuid.UUID | None
    reason: str | None
    """Why the job failed."""
    chain: str | None
    """Hash of the last record, which covers the provenance of all samples; null until the job has ended."""
    gate: Gate | None
    eta_between: tuple[int, int] | None = None
    """The 95 % interval of `eta_seconds`; missing if that is null."""
    limit: int | None = None
    """Number of items that are asked, from the dataset's beginning; missing if all are."""
    experiment: str | None = None
    """The job's experiment."""
    submitted_by: str | None = None
    """Name of the key that submitted it; missing if no key was asked for."""
    stages: dict[str, StageCount] | None = None
    """Calls by role; missing in lists."""
    unserved: tuple[str, ...] = ()
    """Models that the job's calls wait for and that no guard serves as they were at submission: their files, arguments,
    versions or servers have changed, or they are still being identified. Missing in lists."""
    waiting: tuple[Waiting, ...] = ()
    """Outages of servers that the job's calls wait for, without being charged."""
    unreadable: str | None = None
    """Which part of the job this release cannot read, and why; missing if it can read everything."""
    stored_params: dict[str, Any] | None = None
    """The stored parameters, if `params` is null."""

    @property
    def ended(self) -> bool:
        """Whether the job is in an end state."""
        return self.state in TERMINAL


async def resolve(connection: AsyncConnection, reference: str) -> int:
    """Find the row id of the job with this id, name or prefix of an id.

    Raises:
        NotFound: nothing matches.
        Conflict: several jobs match; the message lists their ids.
    """
    found = await _candidates(connection, reference)
    if len(found) > 1:
        ids = ", ".join(str(row.public_id) for row in found)
        raise Conflict(f"{reference!r} matches several jobs: {ids}", hint="use one of these ids")
    if not found:
        raise await make_not_found(connection, "job", reference)
    return int(found[0].id)


async def _candidates(connection: AsyncConnection, reference: str) -> Sequence[Any]:
    """Find matching jobs; a complete id wins over a name, and a name over a prefix."""
    if not is_usable(reference):
        return []
    span = id_range(reference)
    begin = (await connection.execute(BY_RANGE, {"low": span[0], "high": span[1]})).all() if span else []
    if span and span[0] == span[1] and begin:
        return begin
    return (await connection.execute(BY_NAME, {"name": reference})).all() or begin


def id_range(prefix: str) -> tuple[uuid.UUID, uuid.UUID] | None:
    """Return the smallest and the largest id that begin with `prefix`; None if no id can."""
    digits = prefix.lower().replace("-", "")
    if not _HEX.fullmatch(digits):
        return None
    low, high = uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f"))
    return (low, high) if str(low).startswith(prefix.lower()) or "-" not in prefix else None


async def get(database: Database, reference: str) -> Job:
    """Load one job with its stages from one snapshot."""
    async with database.snapshot() as connection:
        return await view(connection, await resolve(connection, reference))


async def view(connection: AsyncConnection, job: int) -> Job:
    """Load the job with this row id, with its stages."""
    row = (await connection.execute(ONE, {"job": job})).mappings().one()
    left = row["total"] - row["completed"] - row["failed"]
    eta = await pace.estimate_time_left(connection, job, left) if row["state"] == "running" else None
    counted = {stage.role: stage for stage in await connection.execute(STAGES, {"job": job})}
    stages = {
        role: StageCount(done=counted[role].done, total=counted[role].total) for role in CALL_KINDS if role in counted
    }
    lost = await unserved_models.list_unserved_of_job(connection, job)
    away = await awaited_outages.find_waiting_of_jobs(connection, [job])
    return _job(row, stages, eta, lost, away.get(job, ()))


async def load_without_stages(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Job]:
    """Load jobs by row id without stages, estimates and outages."""
    rows = (await connection.execute(SEVERAL, {"jobs": list(jobs)})).mappings()
    return {row["id"]: _job(row) for row in rows}


async def find_row_ids(connection: AsyncConnection, jobs: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Find the row ids of jobs by their public ids."""
    found = await connection.execute(ROWS, {"jobs": list(jobs)})
    return {uuid.UUID(str(row.public_id)): row.id for row in found}


async def list_live_ids(connection: AsyncConnection, limit: int) -> list[str]:
    """List the public ids of live jobs in the order in which their calls are claimed."""
    return [str(each) for each in (await connection.execute(LIVE, {"n": limit})).scalars()]


async def resolve_public_id(database: Database, reference: str) -> uuid.UUID:
    """Find the public id of the job that `reference` names; see `resolve`."""
    async with database.transaction() as connection:
        job = await resolve(connection, reference)
        return uuid.UUID(str((await connection.execute(PUBLIC_ID, {"job": job})).scalar_one()))


async def list_submitters(
    database: Database, *, job: uuid.UUID | None = None, experiment: int | None = None
) -> set[str | None]:
    """List the names of the keys that submitted the job, or the jobs of the experiment with this row id; None stands
    for jobs that were submitted without one.
    """
    return set(await database.column(SUBMITTERS, {"job": job, "experiment": experiment}))


async def has_ended(connection: AsyncConnection, job: int) -> bool:
    """Tell whether the job with this row id has ended."""
    return bool((await connection.execute(ENDED, {"job": job})).scalar_one())


async def find_version(connection: AsyncConnection, job: int) -> int:
    """Return the version of the job with this row id, which every change of its state or fields increments."""
    return int((await connection.execute(VERSION, {"job": job})).scalar_one())


def count_requests(state: str, total: int, completed: int, failed: int, cancelled: int, unparsed: int) -> RequestCounts:
    """Count samples by state; samples that an early end kept from existing count as the job's end state."""
    left = total - completed - failed - cancelled
    return RequestCounts(
        total=total,
        completed=completed,
        failed=failed + (left if state == "failed" else 0),
        cancelled=cancelled + (left if state == "cancelled" else 0),
        in_progress=left if state not in ("failed", "cancelled") else 0,
        unparsed=unparsed,
    )


_COUNTED = ("state", "total", "completed", "failed", "cancelled", "unparsed")
_COPIED = (
    "name", "state", "pipeline", "dataset", "corpus", "limit", "repeats", "reuse", "rank", "metadata", "version",
    "created_at", "running_at", "ended_at", "reason", "chain", "experiment", "submitted_by",
)  # fmt: skip


def _job(
    row: RowMapping,
    stages: dict[str, StageCount] | None = None,
    eta: TimeLeft | None = None,
    lost: tuple[str, ...] = (),
    away: tuple[Waiting, ...] = (),
) -> Job:
    params, problem = try_decode_params(row["params"], "its parameters")
    decision, other = try_decode(row["prepared"], GateDecision, "its gate decision")
    return Job(
        id=uuid.UUID(str(row["public_id"])),
        request_counts=count_requests(*(row[field] for field in _COUNTED)),
        reached=msgspec.convert(row["reached"], dict[str, datetime]),
        requeued_from=uuid.UUID(str(row["requeued_from"])) if row["requeued_from"] else None,
        eta_seconds=eta.seconds if eta else None,
        eta_between=(eta.low, eta.high) if eta else None,
        params=params,
        gate=_gate(decision),
        stages=stages,
        unserved=lost,
        waiting=away,
        unreadable="; ".join(filter(None, (problem, other))) or None,
        stored_params=try_decode(row["params"], dict[str, Any], "")[0] if problem else None,
        **{field: row[field] for field in _COPIED},
    )


def decode_gate(prepared: bytes | None) -> Gate | None:
    """Decode a stored gate decision without its vectors; None if there is none that this release can read."""
    return _gate(try_decode(prepared, GateDecision, "")[0])


def _gate(decision: GateDecision | None) -> Gate | None:
    if decision is None:
        return None
    copied = ("strategy", "reason", "tau", "rho", "low", "high", "asked", "unparsed")
    return Gate(pairs=len(decision.documents), **{field: getattr(decision, field) for field in copied})
