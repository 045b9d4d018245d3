"""Rows of jobs: their progress, cost, decisions, and the calls that they wait for."""

import math
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from anyio import to_thread
from msgspec import inspect
from pydantic import Field, StringConstraints
from sqlalchemy import Row, RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict
from mathrag.intervals import Graded, Table, poisson_interval
from shared.calls import CALL_KINDS, Lane
from shared.fields import WHOLE, Metadata, Rank, Stored
from shared.params import MOST_REPEATS, Params
from shared.plugins import loading
from shared.samples import GateDecision
from shared.shapes import ACCURACY, EXACT, Measure, Measured, PluginPin
from shared.storage import database as storage
from shared.storage.archive import list_archived, show_archived
from shared.storage.database import (
    PATTERN,
    TERMINAL,
    Database,
    fill_names,
    is_usable,
    make_not_found,
    sql,
    try_decode,
    try_decode_params,
)


class JobFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a job that are stored and shown as the request gives them. Requests, forms, submissions, statements and
    answers take their fields from here (CONTRIBUTING.md says how to add one)."""

    name: str
    """Name of the job; it must be unique."""
    dataset: Stored
    """Name of the dataset."""
    pipeline: Stored
    """Name of the pipeline."""
    corpus: Stored | None = None
    """Name of the corpus; null if the pipeline does not search."""
    limit: Annotated[int, Field(ge=1, lt=1 << 31), WHOLE] | None = None
    """Number of items to use, from the start of the dataset; by default all."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS), WHOLE] = 1
    """Number of answers to each item."""
    reuse: Literal["all", "none"] = "all"
    """`all`: reuse replies of other jobs; `none`: compute every reply again."""
    rank: Rank = 100
    """Priority: calls with a smaller rank are claimed first."""
    metadata: Metadata = {}
    """Your own data about the job; the service does not read it."""


JOB_FIELDS = JobFields.__struct_fields__
_SQL_TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "text", inspect.LiteralType: "text", inspect.IntType: "integer", inspect.BoolType: "boolean",
    inspect.FloatType: "double precision", inspect.DictType: "jsonb",
}  # fmt: skip


def _list_columns() -> Iterator[tuple[str, str]]:
    described: Any = inspect.type_info(JobFields)
    for field in described.fields:
        kind = field.type.types[0] if isinstance(field.type, inspect.UnionType) else field.type
        # `jobs` refers to dataset and corpus by their ids, and has the limit in `code`.
        if field.name not in ("dataset", "corpus", "limit"):
            yield field.name, _SQL_TYPES[type(kind)]


JOB_COLUMNS = dict(_list_columns())
"""Fields that have a column of their name in `jobs`, with their types."""
SELECTED_FIELDS = (
    ", ".join(f"j.{name}" for name in JOB_COLUMNS)
    + """, d.name AS dataset, k.name AS corpus, CAST(j.code ->> 'limit' AS integer) AS "limit\""""
)
"""All fields, as a query selects them from `jobs j`, `datasets d` and `corpora k`."""
# One row per job with its samples counted by state; (job_id, state) is an index.
JOBS = fill_names(f"""
    SELECT j.id, j.public_id, {SELECTED_FIELDS}, j.state, j.code ->> 'submitted_by' AS submitted_by, j.project,
        j.reason, j.params, j.prepared, j.total, j.version, j.created_at, j.running_at, j.ended_at,
        encode(j.chain, 'hex') AS chain, EXISTS (SELECT FROM archived_parts p WHERE p.job_id = j.id) AS archived,
        r.public_id AS requeued_from, x.name AS experiment, n.completed, n.failed, n.cancelled,
        (SELECT count(*) FROM samples s WHERE s.job_id = j.id AND s.kind = 'item' AND s.state = {{FAILED}}
            AND s.failure = 'unparsed') AS unparsed,
        (SELECT jsonb_object_agg(e.state, e.at) FROM (
            SELECT state, min(at) AS at FROM job_events WHERE job_id = j.id GROUP BY state) e) AS reached
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    LEFT JOIN jobs r ON r.id = j.requeued_from LEFT JOIN experiments x ON x.id = j.experiment_id
    CROSS JOIN LATERAL (
        SELECT {{COUNTS_BY_END}} FROM samples s WHERE s.job_id = j.id AND s.kind = 'item') n""")  # noqa: S608 - names of this program alone
ONE = text(f"{JOBS} WHERE j.id = :job")
SEVERAL = text(f"{JOBS} WHERE j.id = ANY(:jobs)")
ROWS = text("SELECT id, public_id FROM jobs WHERE public_id = ANY(:jobs)")
BY_NAME = text("SELECT id, public_id FROM jobs WHERE name = :name AND NOT online ORDER BY id DESC LIMIT 10")
BY_RANGE = text("SELECT id, public_id FROM jobs WHERE public_id BETWEEN :low AND :high ORDER BY public_id LIMIT 10")
STAGES = sql("""
    SELECT c.role, count(*) AS total, count(*) FILTER (WHERE c.failed OR a.id IS NOT NULL) AS done
    FROM ({CALLS_OF_JOB}) mine JOIN calls c ON c.id = mine.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
    GROUP BY c.role""")
ARCHIVED_STAGES = text("""
    SELECT n.role, n.total, n.done FROM archived_parts, jsonb_to_recordset(stages) n(role text, total int, done int)
    WHERE job_id = :job""")
LIVE = text("SELECT public_id FROM jobs WHERE ended_at IS NULL AND NOT online ORDER BY rank, id LIMIT :n")
HAS_ENDED = text("SELECT ended_at IS NOT NULL FROM jobs WHERE id = :job")
PUBLIC_ID = text("SELECT public_id FROM jobs WHERE id = :job")
VERSION = text("SELECT version FROM jobs WHERE id = :job")
SUBMITTERS = text("""
    SELECT DISTINCT code ->> 'submitted_by' FROM jobs WHERE public_id = :job OR experiment_id = :experiment""")
_HEX = re.compile(r"[0-9a-f]{4,32}")


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Samples by state: completed, failed, cancelled and in_progress add up to `total`."""

    total: int
    """Number of samples."""
    completed: int
    """Number of completed samples."""
    failed: int
    """Number of failed samples."""
    cancelled: int
    """Number of cancelled samples."""
    in_progress: int
    """Number of samples that have not ended."""
    unparsed: int
    """Number of failed samples with a model reply that could not be parsed."""


class StageCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role that the job has requested so far."""

    done: int
    """Number of calls that have a reply or failed for good."""
    total: int
    """Number of calls requested so far."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's decision without its score vectors, which the report has."""

    strategy: str
    """Scorer of the job's documents."""
    reason: str
    """Why this strategy was chosen."""
    tau: float
    """Threshold of the correlation above which rules replace the judge."""
    rho: float | None
    """Pearson's correlation of rule and judge scores; null if it is undefined."""
    low: float | None
    """Lower end of the 95 % interval of `rho`; null if it is undefined."""
    high: float | None
    """Upper end of the 95 % interval of `rho`; null if it is undefined."""
    pairs: int
    """Number of documents with both scores."""
    asked: int
    """Number of judge calls for the calibration."""
    unparsed: int
    """Number of judge replies that could not be parsed."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A server, index or plug-in that is not available while calls or samples wait for it."""

    what: str
    """Name of the server, index or plug-in."""
    said: str
    """Error of the last attempt to reach it."""
    since: datetime
    """Start of the outage."""
    next_try: datetime | None
    """Time of the next attempt; a past time means that it is under way or about to begin. Null for a plug-in, which is
    tried again when the service starts."""


class TimeLeft(NamedTuple):
    """Estimated seconds until the job's last sample ends, with a 95 % interval."""

    seconds: int
    low: int
    high: int
    """Upper end of the interval, which assumes that samples end independently of each other."""


# It declares inherited fields with a default again: without one, they are in every answer. `limit` and later fields are
# missing from an answer that has their default.
class Job(JobFields, frozen=True, kw_only=True, omit_defaults=True):
    """A job."""

    id: uuid.UUID
    """Id of the job."""
    state: str
    """State of the job."""
    corpus: str | None
    """Name of the corpus; null if the job has none."""
    repeats: int
    """Number of answers to each item."""
    reuse: str  # type: ignore[assignment]  # as the API has always described it
    """`all`: replies of other jobs are reused; `none`: every reply is computed again."""
    request_counts: RequestCounts
    """Samples by state."""
    params: Params | None
    """Parameters; null if this release cannot read them (see `unreadable`)."""
    rank: int
    """Priority: calls with a smaller rank are claimed first."""
    metadata: dict[str, str]
    """Your own data about the job; the service does not read it."""
    version: int
    """Number that grows with every change of state, name, rank or metadata."""
    created_at: datetime
    """Time of submission."""
    running_at: datetime | None
    """Time at which the job first entered the state `running`; null before."""
    ended_at: datetime | None
    """Time of the end; null while the job runs."""
    reached: dict[str, datetime]
    """Time at which the job first entered each state."""
    eta_seconds: int | None
    """Estimated seconds until the end, from the pace of the ended samples; null without an estimate and in lists."""
    requeued_from: uuid.UUID | None
    """Id of the job that this one repeats; null if it repeats none."""
    reason: str | None
    """Why the job failed, or why it could not be ended so far; null otherwise."""
    chain: str | None
    """Hash of the last record, which covers the provenance of all samples; null until the job has ended."""
    gate: Gate | None
    """Decision of the confidence gate; null without one."""
    archived: bool = False
    """Whether its calls are archived, at least in part (`mathrag job archive`)."""
    eta_between: tuple[int, int] | None = None
    """95 % interval of `eta_seconds`; missing if that is null."""
    experiment: str | None = None
    """Name of the job's experiment; missing if it belongs to none."""
    submitted_by: str | None = None
    """Name of the key that submitted the job; missing if no key was required."""
    project: str | None = None
    """Project that it belongs to; missing if everybody sees it."""
    stages: dict[str, StageCount] | None = None
    """Calls by role; missing in lists."""
    unserved: tuple[str, ...] = ()
    """Models that the job's calls wait for because no guard serves them as they were at submission: their files,
    arguments, versions or servers have changed, or they are still being identified. Missing in lists."""
    waiting: tuple[Waiting, ...] = ()
    """Outages that the job's calls wait for; the waits do not count as failed attempts."""
    unreadable: str | None = None
    """Which part of the job this release cannot read, and why; missing if it can read all."""
    stored_params: dict[str, Any] | None = None
    """The stored parameters if `params` is null; missing otherwise."""

    @property
    def ended(self) -> bool:
        """Return whether the job is in an end state."""
        return self.state in TERMINAL


async def resolve(connection: AsyncConnection, reference: str) -> int:
    """Find the row id of the job with this id, name or prefix of an id.

    Raises:
        NotFound: nothing matches.
        Conflict: several jobs match; the message lists their ids.
    """
    found: Sequence[Any] = []
    if is_usable(reference):
        span = id_range(reference)
        begin = (await connection.execute(BY_RANGE, {"low": span[0], "high": span[1]})).all() if span else []
        # A complete id wins over a name, and a name over a prefix.
        is_complete = span is not None and span[0] == span[1] and len(begin) > 0
        found = begin if is_complete else (await connection.execute(BY_NAME, {"name": reference})).all() or begin
    if len(found) > 1:
        ids = ", ".join(str(row.public_id) for row in found)
        raise Conflict(f"{reference!r} matches several jobs: {ids}", hint="use one of these ids")
    if not found:
        raise await make_not_found(connection, "job", reference)
    return int(found[0].id)


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
    eta = await estimate_time_left(connection, job, left) if row["state"] == "running" else None
    counts = await connection.execute(ARCHIVED_STAGES if row["archived"] else STAGES, {"job": job})
    counted = {stage.role: stage for stage in counts}
    stages = {
        role: StageCount(done=counted[role].done, total=counted[role].total) for role in CALL_KINDS if role in counted
    }
    lost = await list_unserved_of_job(connection, job)
    away = await find_waiting_of_jobs(connection, [job])
    return _make_job(row, stages, eta, lost, away.get(job, ()))


async def load_without_stages(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Job]:
    """Load jobs by row id without stages, estimates and outages."""
    rows = (await connection.execute(SEVERAL, {"jobs": list(jobs)})).mappings()
    return {row["id"]: _make_job(row) for row in rows}


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
    """List the names of the keys that submitted the job, or the jobs of the experiment with this row id; None means
    for jobs that were submitted without one.
    """
    return set(await database.column(SUBMITTERS, {"job": job, "experiment": experiment}))


async def has_ended(connection: AsyncConnection, job: int) -> bool:
    """Tell whether the job with this row id has ended."""
    return bool((await connection.execute(HAS_ENDED, {"job": job})).scalar_one())


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
    "state", "version", "created_at", "running_at", "ended_at", "reason", "chain", "experiment", "submitted_by",
    "project", "archived",
)  # fmt: skip


def _make_job(
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
        gate=_make_gate(decision),
        stages=stages,
        unserved=lost,
        waiting=away,
        unreadable="; ".join(filter(None, (problem, other))) or None,
        stored_params=try_decode(row["params"], dict[str, Any], "")[0] if problem else None,
        **{field: row[field] for field in (*JOB_FIELDS, *_COPIED)},
    )


def decode_gate(prepared: bytes | None) -> Gate | None:
    """Decode a stored gate decision without its vectors; None if this release can read none."""
    return _make_gate(try_decode(prepared, GateDecision, "")[0])


def _make_gate(decision: GateDecision | None) -> Gate | None:
    if decision is None:
        return None
    copied = ("strategy", "reason", "tau", "rho", "low", "high", "asked", "unparsed")
    return Gate(pairs=len(decision.documents), **{field: getattr(decision, field) for field in copied})


CHANGES = text("SELECT version, state, reason, at FROM job_events WHERE job_id = :job ORDER BY version")


class JobStateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The job entered this state, or its name, rank or metadata changed in it."""

    version: int
    state: str
    reason: str | None
    at: datetime


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one instant, with its history."""

    row: int
    """jobs.id"""
    job: Job
    changes: list[JobStateChange]


async def take_snapshot(database: Database, job: int) -> JobSnapshot:
    """Take a snapshot of the job with this row id."""
    async with database.snapshot() as connection:
        rows = (await connection.execute(CHANGES, {"job": job})).mappings()
        changes = [JobStateChange(**row) for row in rows]
        return JobSnapshot(row=job, job=await view(connection, job), changes=changes)


# List jobs, filtered and sorted, page by page. Only the samples of the page's jobs are counted.

Sort = Literal["newest", "name", "state"]
"""Sort keys that a page's cursor can continue from; counted values such as accuracy cannot be one."""
_STATE = (
    "array_position(ARRAY['running', 'preparing', 'finalizing', 'cancelling', 'paused', 'failed', 'cancelled',"
    " 'completed'], {})"
)
"""Sort order of states: live jobs first, then those that did not end well."""
_NOW, _THEN = _STATE.format("j.state"), _STATE.format("CAST(:key AS text)")


def _statement(key: str, after: str, order: str) -> TextClause:
    return text(f"""
        SELECT j.id, {key} AS key FROM jobs j JOIN datasets d ON d.id = j.dataset_id
        LEFT JOIN corpora k ON k.id = j.corpus_id LEFT JOIN experiments x ON x.id = j.experiment_id
        WHERE NOT j.online AND (CAST(:before AS bigint) IS NULL OR {after})
            AND (CAST(:state AS text) IS NULL OR j.state = :state) AND (CAST(:name AS text) IS NULL OR j.name = :name)
            AND (CAST(:name_contains AS text) IS NULL OR strpos(lower(j.name), lower(:name_contains)) > 0)
            AND (CAST(:pipeline AS text) IS NULL OR j.pipeline = :pipeline)
            AND (CAST(:dataset AS text) IS NULL OR d.name = :dataset)
            AND (CAST(:corpus AS text) IS NULL OR k.name = :corpus)
            AND (CAST(:experiment AS text) IS NULL OR x.name = :experiment)
            AND (CAST(:submitted_by AS text) IS NULL OR j.code ->> 'submitted_by' = :submitted_by)
        ORDER BY {order} LIMIT :n""")  # noqa: S608 - parts of this module alone


SORTED: dict[Sort, TextClause] = {
    "newest": _statement("''", "j.id < :before", "j.id DESC"),
    "name": _statement("j.name", "(j.name, j.id) > (:key, :before)", "j.name, j.id"),
    "state": _statement("j.state", f"({_NOW} > {_THEN} OR {_NOW} = {_THEN} AND j.id < :before)", f"{_NOW}, j.id DESC"),
}


Named = Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
State = Literal["preparing", "running", "paused", "finalizing", "completed", "failed", "cancelling", "cancelled"]


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list; null accepts any value."""

    state: State | None = None
    """State of the job."""
    pipeline: Named | None = None
    """Name of the pipeline."""
    dataset: Named | None = None
    """Name of the dataset."""
    corpus: Named | None = None
    """Name of the corpus."""
    name: Named | None = None
    """Name of the job."""
    name_contains: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00]+$")] | None = None
    """Part of the name, ignoring case."""
    experiment: Named | None = None
    """Name of the experiment."""
    submitted_by: Named | None = None
    """Name of the key that submitted the job."""


EVERY = JobSelection()


async def list_jobs(
    database: Database, limit: int, cursor: str | None = None, filters: JobSelection = EVERY, sort: Sort = "newest"
) -> storage.Page[Job]:
    """List jobs without stages and estimates.

    Raises:
        BadRequest: the cursor belongs to another list, other filters or another order.
    """
    scope = storage.cursor_scope("jobs", sort=sort, **msgspec.structs.asdict(filters))
    key, before = storage.decode_sorted_cursor(cursor, scope) if cursor else ("", None)
    async with database.transaction() as connection:
        values = {"key": key, "before": before, "n": limit + 1, **msgspec.structs.asdict(filters)}
        rows = (await connection.execute(SORTED[sort], values)).all()
        picked = rows[:limit]
        found = await load_without_stages(connection, [row.id for row in picked])
        away = await find_waiting_of_jobs(connection, [row for row, job in found.items() if not job.ended])
    listed = [msgspec.structs.replace(found[row.id], waiting=away.get(row.id, ())) for row in picked]
    following = None
    if len(rows) > limit:
        following = storage.encode_cursor(scope, picked[-1].id, sorted_by=picked[-1].key)
    return storage.Page(data=listed, next_cursor=following)


# Find the outages that jobs wait for: those of models whose calls their samples need next.

# Outages are rare; without one, no row of the jobs is read.
WAITING = sql("""
    SELECT j.id AS job, o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o CROSS JOIN unnest(CAST(:jobs AS bigint[])) j(id)
    WHERE EXISTS (
        SELECT 1 FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        JOIN queue q ON q.call_id = t.call_id AND q.model_id = o.model_id WHERE s.job_id = j.id AND s.state = {WAITING})
    GROUP BY j.id, o.what ORDER BY min(o.since), o.what""")
# Pins of a job that this process does not have, in the order in which it is pinned.
LACKING = sql("""
    SELECT j.id AS job, j.name, p.value AS pin FROM jobs j CROSS JOIN LATERAL jsonb_array_elements(j.code -> 'plugins')
        WITH ORDINALITY p(value, place)
    WHERE (CAST(:jobs AS bigint[]) IS NULL OR j.id = ANY(:jobs)) AND j.ended_at IS NULL AND j.state IN {RUNNABLE}
        AND NOT {HAS_PLUGINS} ORDER BY j.id, p.place""")
SELECT_AWAITED_OUTAGES = text("""
    SELECT o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o GROUP BY o.what ORDER BY min(o.since), o.what""")


class Lacking(NamedTuple):
    """A plug-in that a job needs and that this process lacks."""

    job: int
    name: str
    """Name of the job."""
    pin: PluginPin
    said: str
    """Why, and what to do."""


async def find_waiting_of_jobs(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, tuple[Waiting, ...]]:
    """Find the outages that each of these jobs waits for; jobs that wait for none are left out."""
    found: defaultdict[int, tuple[Waiting, ...]] = defaultdict(tuple)
    for row in await connection.execute(WAITING, {"jobs": list(jobs)}):
        found[row.job] += (Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try),)
    for each in await list_lacking_plugins(connection, jobs):
        found[each.job] += (
            Waiting(what=f"plug-in {each.pin}", said=each.said, since=loading.get_loaded().at, next_try=None),
        )
    return found


async def list_lacking_plugins(connection: AsyncConnection, jobs: Sequence[int] | None = None) -> list[Lacking]:
    """List plug-ins that these live jobs need and this process lacks; None stands for all live jobs."""
    values = {"jobs": None if jobs is None else list(jobs), "plugins": loading.encode_usable_pins()}
    lacking = []
    for row in await connection.execute(LACKING, values):
        pin = msgspec.convert(row.pin, PluginPin)
        if (reason := loading.explain_absence(pin)) is not None:
            lacking.append(Lacking(row.job, row.name, pin, reason))
    return lacking


async def find_all_waiting(connection: AsyncConnection) -> list[Waiting]:
    """List the outages that any call waits for, the oldest first."""
    rows = await connection.execute(SELECT_AWAITED_OUTAGES)
    return [Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try) for row in rows]


# Find models that no guard serves although samples wait for their calls.

# Such models are rare, so waiting samples are searched only if there are any.
LOST = """
    WITH lost AS MATERIALIZED (
        SELECT m.id, m.name, m.digest, m.device FROM models m
        WHERE NOT m.served AND EXISTS (
            SELECT 1 FROM queue q WHERE q.lane = ANY(:lanes) AND q.model_id = m.id OFFSET 0))"""


def make_lost_statement(select: str) -> TextClause:
    """Prepend the common table expression `lost` to `select` and fill in the shared names."""
    return sql(f"{LOST} {select}")


SELECT_UNSERVED_MODELS_OF_JOB = make_lost_statement("""
    SELECT l.name FROM lost l WHERE EXISTS (
        SELECT 1 FROM queue q JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP}
        WHERE q.lane = ANY(:lanes) AND q.model_id = l.id AND s.job_id = :job OFFSET 0)
    GROUP BY l.name ORDER BY l.name""")
SELECT_UNSERVED_MODELS = make_lost_statement("""
    SELECT l.name, l.digest, waiting.jobs,
        (SELECT digest FROM models n WHERE n.name = l.name AND n.served ORDER BY n.registered_at DESC LIMIT 1) AS now
    FROM lost l CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT j.name ORDER BY j.name) AS jobs FROM (
            SELECT call_id FROM queue WHERE lane = ANY(:lanes) AND model_id = l.id LIMIT :most) q
        JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP} JOIN jobs j ON j.id = s.job_id) waiting
    WHERE l.device IS NOT NULL AND waiting.jobs IS NOT NULL ORDER BY l.name""")
LANES = list(Lane)
MOST_UNSERVED_MODELS = 1000
"""Largest number of waiting calls per model whose jobs are looked up."""


async def list_unserved_of_job(connection: AsyncConnection, job: int) -> tuple[str, ...]:
    """List the names of unserved models that the job with this row id waits for."""
    return tuple((await connection.execute(SELECT_UNSERVED_MODELS_OF_JOB, {"job": job, "lanes": LANES})).scalars())


async def list_unserved(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """List all unserved models with name, digest, digest of the version served `now`, and names of waiting `jobs`."""
    return (await connection.execute(SELECT_UNSERVED_MODELS, {"lanes": LANES, "most": MOST_UNSERVED_MODELS})).all()


# Estimate a job's remaining time from the pace at which its samples have ended.
#
# Samples end only in the last stage, so earlier stages have no estimate. The pace is measured between the
# first and the last ended sample, so the estimate holds as of the last one and changes only with the next.

FEWEST = 10
"""Number of ended samples that an estimate needs."""
COUNT_ENDED_SAMPLES = sql("""
    SELECT count(*) AS ended, min(ended_at) AS first, max(ended_at) AS last FROM samples
    WHERE job_id = :job AND kind = 'item' AND state IN {DONE}""")


async def estimate_time_left(connection: AsyncConnection, job: int, in_progress: int) -> TimeLeft | None:
    """Estimate the remaining time; None if too few samples have ended."""
    row = (await connection.execute(COUNT_ENDED_SAMPLES, {"job": job})).one()
    seconds = estimate_seconds(in_progress, row.ended, row.first, row.last)
    if seconds is None:
        return None
    # In a thread, because the first call imports scipy, which takes a second.
    return TimeLeft(seconds, *await to_thread.run_sync(estimate_bounds, in_progress, row.ended, row.first, row.last))


def estimate_seconds(in_progress: int, ended: int, first: datetime | None, last: datetime | None) -> int | None:
    """Estimate the seconds for `in_progress` samples, given that `ended` ones ended between `first` and `last`."""
    if ended < FEWEST or first is None or last is None or last <= first:
        return None
    return math.ceil(in_progress * (last - first).total_seconds() / (ended - 1))


def estimate_bounds(in_progress: int, ended: int, first: datetime, last: datetime) -> tuple[int, int]:
    """Return the estimate's 95 % interval, with the number of samples that end in a time as a Poisson count."""
    few, many = poisson_interval(ended - 1)
    span = in_progress * (last - first).total_seconds()
    return math.floor(span / many), math.ceil(span / few)


# Load the costs of several jobs with a few statements; `reports/work.py` has the details of one job.

CALLS = text("""
    WITH mine AS (
        SELECT s.job_id, t.call_id, bool_or(t.created) AS made FROM samples s JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = ANY(:jobs) GROUP BY s.job_id, t.call_id)
    SELECT mine.job_id, c.role, count(*) FILTER (WHERE mine.made) AS made,
        count(*) FILTER (WHERE NOT mine.made) AS reused
    FROM mine JOIN calls c ON c.id = mine.call_id GROUP BY mine.job_id, c.role ORDER BY mine.job_id, c.role""")
LOADS = sql("""
    SELECT DISTINCT s.job_id, r.epoch, c.model_id, loading.n
    FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
    JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
    JOIN residencies r ON r.epoch = a.epoch CROSS JOIN {LOADS_OF_MODEL} WHERE s.job_id = ANY(:jobs)""")
FAILURES = sql("""
    SELECT job_id, failure, count(*) AS samples FROM samples
    WHERE job_id = ANY(:jobs) AND kind = 'item' AND state = {FAILED}
    GROUP BY job_id, failure ORDER BY job_id, failure""")
CountsByJob = dict[int, dict[str, int]]
"""Counts by job, then by role or kind."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Costs by row id of the job; jobs without calls are left out."""

    made: CountsByJob
    """Calls that the job enqueued, by role."""
    reused: CountsByJob
    """Calls that another job had made, by role."""
    loads: dict[int, set[tuple[int, int, int]]]
    """(epoch, model, number of the load in that epoch) of the calls that the job enqueued."""
    failures: CountsByJob
    """Failed samples by kind of failure."""


async def load_costs(connection: AsyncConnection, jobs: Sequence[int]) -> Costs:
    """Load the costs of these jobs (row ids)."""
    made: defaultdict[int, dict[str, int]] = defaultdict(dict)
    reused: defaultdict[int, dict[str, int]] = defaultdict(dict)
    loads: defaultdict[int, set[tuple[int, int, int]]] = defaultdict(set)

    async def add(values: dict[str, Any]) -> None:
        for row in await connection.execute(CALLS, values):
            made[row.job_id][row.role], reused[row.job_id][row.role] = row.made, row.reused
        for row in await connection.execute(LOADS, values):
            loads[row.job_id].add((row.epoch, row.model_id, row.n))

    archived = await list_archived(connection, jobs)
    await add({"jobs": sorted({*jobs} - {*archived})})
    for job in archived:
        async with show_archived(connection, job, texts=False):
            await add({"jobs": [job]})
    return Costs(
        made=dict(made), reused=dict(reused), loads=dict(loads), failures=await count_failures(connection, jobs)
    )


async def count_failures(connection: AsyncConnection, jobs: Sequence[int]) -> CountsByJob:
    """Count the failed samples of these jobs (row ids) by kind of failure."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(FAILURES, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.failure] = row.samples
    return dict(found)


PREPARED = text("SELECT prepared FROM jobs WHERE id = :job")


async def load_decision(connection: AsyncConnection, job: int) -> GateDecision | None:
    """Load a job's gate decision; None if it does not exist yet or this release cannot read it."""
    prepared = (await connection.execute(PREPARED, {"job": job})).scalar_one()
    return try_decode(prepared, GateDecision, "")[0]


WINDOW_S = 30.0
"""Time window of the pace, in seconds."""
MOST_CALLS = 20_000
"""Largest number of queued or ended calls that are counted per lane and model."""
QUEUED = text("""
    SELECT l.lane, m.name AS model, CASE WHEN m.needs_lease THEN m.device END AS device, q.queued, q.running
    FROM models m CROSS JOIN unnest(CAST(:lanes AS text[])) l(lane)
    CROSS JOIN LATERAL (
        SELECT count(*) AS queued, count(token) AS running
        FROM (SELECT token FROM queue WHERE lane = l.lane AND model_id = m.id LIMIT :most) first) q
    WHERE q.queued > 0""")
# The window is limited by time and by number of calls; in the second case, their span is the window.
COUNT_ENDED_CALLS = text("""
    SELECT c.role, m.name AS model, CASE WHEN m.needs_lease THEN m.device END AS device, count(*) AS ended,
        CASE WHEN sum(count(*)) OVER () < :most THEN :window
            ELSE extract(epoch FROM now() - min(min(a.created_at)) OVER ()) END AS seconds
    FROM (SELECT call_id, created_at FROM attempts
          WHERE accepted AND created_at > now() - make_interval(secs => :window) ORDER BY created_at DESC LIMIT :most) a
    JOIN calls c ON c.id = a.call_id JOIN models m ON m.id = c.model_id
    GROUP BY c.role, m.name, m.device, m.needs_lease""")


class LaneWork(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model in one lane."""

    lane: Lane
    """Queue of the calls."""
    model: str
    """Name of the model."""
    device: str | None
    """Device on which the model must be resident; null if it needs none."""
    queued: int = 0
    """Number of pending and claimed calls, counted up to 20,000."""
    running: int = 0
    """Number of calls that a worker has claimed."""
    ended: int = 0
    """Number of calls that ended in the last `window_s` seconds."""
    window_s: float = WINDOW_S
    """Length of the window of `ended` in seconds."""


async def load_work(connection: AsyncConnection) -> list[LaneWork]:
    """Load the work of each model with queued or recently ended calls, the judge's lane first."""
    queued = (await connection.execute(QUEUED, {"lanes": list(Lane), "most": MOST_CALLS})).mappings()
    found = {(Lane(row["lane"]), row["model"]): msgspec.convert(dict(row), LaneWork) for row in queued}
    for row in (await connection.execute(COUNT_ENDED_CALLS, {"window": WINDOW_S, "most": MOST_CALLS})).mappings():
        place = (CALL_KINDS[row["role"]].lane, row["model"])
        known = found.get(place) or LaneWork(lane=place[0], model=place[1], device=row["device"])
        found[place] = msgspec.structs.replace(
            known, ended=known.ended + row["ended"], window_s=max(float(row["seconds"]), 0.001)
        )
    return sorted(found.values(), key=lambda each: (list(Lane).index(each.lane), each.model))


MOST_SUBJECTS = 200
"""Largest number of pairs of subject and level; a dataset with more uses these fields for something else."""
SELECT_SUBJECTS = text("""
    SELECT DISTINCT i.subject, i.level FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.public_id = CAST(:job AS uuid) LIMIT :most""")


class Subjects(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects and levels, sorted."""

    subjects: list[str]
    levels: list[str]


async def load_subjects(database: Database, job: str) -> Subjects:
    """Load the subjects and levels of the job's dataset, which never change."""
    async with database.statement() as connection:
        rows = (await connection.execute(SELECT_SUBJECTS, {"job": job, "most": MOST_SUBJECTS})).all()
    return Subjects(
        subjects=sorted({row.subject for row in rows if row.subject}),
        levels=sorted({row.level for row in rows if row.level}),
    )


# Add up the samples' values of a measure by item in PostgreSQL, so that jobs of any length yield few rows.
#
# The figures of one job count every line of its dataset as an item, like its report. In pairs of jobs two items are the
# same if question and gold answer are equal, in any dataset and at any position; an item that a dataset lists twice is
# one observation there.

COLUMNS = {ACCURACY: "correct", EXACT: "strict"}
"""Measures with a column in `outcomes`; the others are read from the encoded outcomes."""
UNIT = 1_000_000
"""Scores are integers in units of 1 / UNIT, so that scores that differ only by rounding are equal."""
OUTCOMES = text("""
    SELECT o.sample_id, o.outcome FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item'""")
SHARES = """
    SELECT job_id, total, n, count(*) AS items
    FROM (SELECT job_id, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, ordinal) by_item
    GROUP BY job_id, total, n"""
COMMON = """,
        by_question AS MATERIALIZED (
            SELECT job_id, hash, sum(value) AS total, count(*) AS n FROM by_sample GROUP BY job_id, hash)
    SELECT p.one, p.other, a.total, a.n, b.total AS other_total, b.n AS other_n, count(*) AS items
    FROM unnest(CAST(:ones AS bigint[]), CAST(:others AS bigint[])) AS p (one, other)
    JOIN by_question a ON a.job_id = p.one JOIN by_question b ON b.job_id = p.other AND b.hash = a.hash
    GROUP BY 1, 2, 3, 4, 5, 6"""
QUESTIONS = "SELECT job_id, count(DISTINCT hash) AS questions FROM by_sample GROUP BY job_id"
# Only items with a value in every repeat that has any: the others would make repeats differ by their questions.
REPEATS = """,
        by_job AS (SELECT job_id, count(DISTINCT repeat) AS repeats FROM by_sample GROUP BY job_id),
        counted AS (SELECT *, count(*) OVER (PARTITION BY job_id, ordinal) AS values_of_item FROM by_sample)
    SELECT c.job_id, c.repeat, sum(c.value) AS total, count(*) AS n
    FROM counted c JOIN by_job b ON b.job_id = c.job_id AND b.repeats = c.values_of_item
    GROUP BY c.job_id, c.repeat"""
EXTRACTIONS = text("""
    SELECT s.job_id, o.extraction, count(*) AS answers FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' GROUP BY s.job_id, o.extraction ORDER BY s.job_id, o.extraction""")


def _statements(value: str, source: str) -> dict[str, TextClause]:
    """Build the statements over the samples' integer values."""
    values = fill_names(f"""
        WITH by_sample AS (
            SELECT s.job_id, s.ordinal, s.repeat, i.hash, {value} AS value
            FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {{ASKED_BY_SAMPLE}} JOIN {source}
            WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND {value} IS NOT NULL)""")  # noqa: S608 - parts of this module alone
    return {asked: text(values + asked) for asked in (SHARES, COMMON, QUESTIONS, REPEATS)}


_FROM_COLUMNS = {
    name: _statements(f"CAST(o.{column} AS integer)", "outcomes o ON o.sample_id = s.id")
    for name, column in COLUMNS.items()
}
_GIVEN = _statements(
    "v.value", "unnest(CAST(:samples AS bigint[]), CAST(:values AS integer[])) AS v (sample, value) ON v.sample = s.id"
)


class SampleValues(NamedTuple):
    """The values of jobs' samples by a measure."""

    jobs: list[int]
    measure: Measure
    given: dict[str, list[int]]
    """For a measure without a column, the `samples` with a value and their `values`."""

    @property
    def unit(self) -> int:
        """The integer that stands for a value of 1."""
        return UNIT if self.measure.has_degrees else 1

    def mean(self, total: int, n: int) -> Fraction:
        """Return the mean value of an item's answers; scores are rounded to a UNIT, so that tests add integers."""
        return Fraction(total, n) if self.unit == 1 else Fraction(round(total / n), UNIT)

    async def rows(self, connection: AsyncConnection, asked: str, **parameters: Any) -> Sequence[Any]:
        """Run one of this module's statements."""
        statement = _FROM_COLUMNS.get(self.measure.name, _GIVEN)[asked]
        return (await connection.execute(statement, {"jobs": self.jobs, **self.given, **parameters})).all()


async def load_values(connection: AsyncConnection, jobs: Sequence[int], measure: Measure) -> SampleValues:
    """Load the values of these jobs' samples; outcomes that this release cannot read have none."""
    numbers = sorted(set(jobs))
    if measure.name in COLUMNS:
        return SampleValues(numbers, measure, {})
    found = SampleValues(numbers, measure, {"samples": [], "values": []})
    async for row in await connection.stream(OUTCOMES, {"jobs": numbers}):
        outcome, _ = try_decode(row.outcome, Measured, "")
        value = None if outcome is None else measure.value(outcome)
        if value is not None:
            found.given["samples"].append(row.sample_id)
            found.given["values"].append(round(value * found.unit))
    return found


async def count_shares(connection: AsyncConnection, of: SampleValues) -> dict[int, Graded]:
    """Count each job's items by (total value, number of answers); jobs without values are left out."""
    found: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in await of.rows(connection, SHARES):
        found[row.job_id][row.total, row.n] = row.items
    return dict(found)


async def count_verdicts(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, Graded]:
    """Count each job's items by (correct answers, number of answers)."""
    return await count_shares(connection, await load_values(connection, jobs, Measure(ACCURACY)))


async def count_common(
    connection: AsyncConnection, of: SampleValues, pairs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Table]:
    """Count, for each pair of jobs, the items with a value in both, by the two mean values."""
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    found: defaultdict[tuple[int, int], Counter[tuple[Fraction, Fraction]]] = defaultdict(Counter)
    for row in await of.rows(connection, COMMON, ones=ones, others=others):
        found[row.one, row.other][of.mean(row.total, row.n), of.mean(row.other_total, row.other_n)] += row.items
    return dict(found)


async def count_questions(connection: AsyncConnection, of: SampleValues) -> dict[int, int]:
    """Count each job's different items that have a value; jobs without values are left out."""
    return {row.job_id: row.questions for row in await of.rows(connection, QUESTIONS)}


async def sum_repeats(connection: AsyncConnection, of: SampleValues) -> dict[int, dict[int, tuple[float, int]]]:
    """Return (sum of values, number of values) by job and repeat, over the items with a value in every repeat that has
    any.
    """
    found: defaultdict[int, dict[int, tuple[float, int]]] = defaultdict(dict)
    for row in await of.rows(connection, REPEATS):
        found[row.job_id][row.repeat] = row.total / of.unit, row.n
    return dict(found)


async def count_extractions(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, dict[str, int]]:
    """Count the answers of these jobs (row ids) by how the final answer was found in them."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(EXTRACTIONS, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.extraction] = row.answers
    return dict(found)
