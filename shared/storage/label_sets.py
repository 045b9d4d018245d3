"""Store label sets: named tasks drawn from a job's judged documents or graded answers, which never change."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.labels import KINDS, Value, What
from shared.errors import Conflict
from shared.storage import jobs, pages
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.label_draws import DrawnTask, draw_tasks
from shared.storage.names import check_name
from shared.storage.unknown import make_not_found

COLUMNS = """
    SELECT s.id, s.name, s.what, s.job::text AS job, s.job_name, s.job_id IS NULL AS purged, s.seed, s.size, s.eligible,
        s.tasks, encode(s.hash, 'hex') AS hash, s.made_by, s.created_at
    FROM label_sets s"""
ONE = text(f"{COLUMNS} WHERE s.name = :name")
LIST = text(f"{COLUMNS} WHERE s.id < :before ORDER BY s.id DESC LIMIT :n")
SCOPE = pages.cursor_scope("label sets")
PROGRESS = text("""
    WITH counted AS (
        SELECT DISTINCT ON (l.set_id, l.number, l.labeller) l.set_id, l.labeller, l.value, t.system
        FROM labels l JOIN label_tasks t ON t.set_id = l.set_id AND t.number = l.number
        WHERE l.set_id = ANY(:sets) ORDER BY l.set_id, l.number, l.labeller, l.id DESC)
    SELECT set_id, labeller, count(value) AS labels, count(*) FILTER (WHERE value IS NULL) AS abstained,
        count(*) FILTER (WHERE value = system) AS same
    FROM counted GROUP BY set_id, labeller ORDER BY set_id, labeller""")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag label sets'))")
JOB = text("SELECT public_id, name, state, ended_at FROM jobs WHERE id = :job")
INSERT = text("""
    INSERT INTO label_sets (name, what, job_id, job, job_name, seed, size, eligible, tasks, hash, made_by)
    VALUES (:name, :what, :job_id, :job, :job_name, :seed, :size, :eligible, :tasks, :hash, :made_by) RETURNING id""")
TASKS = ("set_id", "number", "item", "repeat", "content", "system")
JUDGED = "a mathrag-gate job has its documents' reasoning rated, a crag job their relevance"
NOTHING: dict[What, tuple[str, str]] = {
    "documents": ("its judge rated the reasoning of no document", JUDGED),
    "relevance": ("its judge rated the relevance of no document", JUDGED),
    "answers": ("none of its answers was graded", "give the dataset's items gold answers, and submit a job over them"),
}
"""By kind of set, why there is nothing to label, and what to do."""


class LabelSetDraft(NamedTuple):
    """A label set as it is requested."""

    name: str
    what: What
    job: str
    size: int
    seed: int


class Labeller(msgspec.Struct, frozen=True, kw_only=True):
    """A labeller's progress; the last label of each task counts."""

    labeller: str
    """Name of the API key."""
    labels: int = 0
    abstained: int = 0
    same: int = 0
    """Labels that agree with the judge or the grader."""


class LabelSet(msgspec.Struct, frozen=True, kw_only=True):
    """A label set as users see it."""

    id: int
    name: str
    what: What
    job: str
    """The job from which the tasks were drawn."""
    job_name: str
    purged: bool
    """Whether the job was purged; the tasks keep their content."""
    seed: int
    size: int
    """Requested number of tasks."""
    eligible: int
    """Number of distinct documents or answers to draw from."""
    tasks: int
    hash: str
    """SHA-256 of all tasks in order."""
    made_by: str
    created_at: datetime
    instructions: str
    scale: tuple[Value, ...]
    """Values from worst to best."""
    labellers: tuple[Labeller, ...] = ()

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
            return await _check_same_set(connection, known, wanted), False
        await _store(connection, wanted, made_by)
        return await get_set(connection, wanted.name), True


async def get_set(connection: AsyncConnection, name: str) -> LabelSet:
    """Get the label set called `name`, with its labellers.

    Raises:
        NotFound: there is none.
    """
    found = await _find_set(connection, name)
    if found is None:
        raise await make_not_found(connection, "label", name)
    return (await _with_labellers(connection, [found]))[0]


async def list_label_sets(database: Database, limit: int, cursor: str | None = None) -> pages.Page[LabelSet]:
    """List label sets, newest first."""
    before = pages.decode_cursor(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings().all()
        found = await _with_labellers(connection, [_set(row) for row in rows])
    return pages.make_page(found, limit, SCOPE, *(each.id for each in found[:limit][-1:]))


async def _find_set(connection: AsyncConnection, name: str) -> LabelSet | None:
    row = (await connection.execute(ONE, {"name": name})).mappings().first()
    return None if row is None else _set(row)


def _set(row: RowMapping) -> LabelSet:
    kind = KINDS[row["what"]]
    return LabelSet(**row, instructions=kind.instructions, scale=kind.scale)


async def _with_labellers(connection: AsyncConnection, sets: Sequence[LabelSet]) -> list[LabelSet]:
    found: dict[int, list[Labeller]] = {each.id: [] for each in sets}
    for row in (await connection.execute(PROGRESS, {"sets": list(found)})).mappings():
        found[row["set_id"]].append(Labeller(**{name: row[name] for name in Labeller.__struct_fields__}))
    return [msgspec.structs.replace(each, labellers=tuple(found[each.id])) for each in sets]


async def _check_same_set(connection: AsyncConnection, known: LabelSet, wanted: LabelSetDraft) -> LabelSet:
    same = (known.what, known.size, known.seed) == (wanted.what, wanted.size, wanted.seed)
    if not same or wanted.job not in (known.job, known.job_name):
        raise Conflict(f"label set {known.name!r} exists with other tasks", hint="choose another name")
    return (await _with_labellers(connection, [known]))[0]


async def _store(connection: AsyncConnection, wanted: LabelSetDraft, made_by: str) -> None:
    job_id = await jobs.resolve(connection, wanted.job)
    job = (await connection.execute(JOB, {"job": job_id})).one()
    if job.ended_at is None:
        hint = "wait until it has ended, or cancel it"
        raise Conflict(f"job {job.name!r} is still {job.state}; only an ended job can be labelled", hint=hint)
    drawn, eligible = await draw_tasks(connection, job_id, wanted.what, wanted.size, wanted.seed)
    if not drawn:
        why, hint = NOTHING[wanted.what]
        raise Conflict(f"job {job.name!r} has nothing to label: {why}", hint=hint)
    values = {
        **wanted._asdict(), "job": job.public_id, "job_name": job.name, "job_id": job_id, "eligible": eligible,
        "tasks": len(drawn), "hash": _hash(wanted.what, drawn), "made_by": made_by,
    }  # fmt: skip
    number = (await connection.execute(INSERT, values)).scalar_one()
    rows = [
        (number, place, each.item, each.repeat, canonical.encode(each.content), str(each.system))
        for place, each in enumerate(drawn, start=1)
    ]
    await copy(connection, "label_tasks", TASKS, rows)


def _hash(what: What, drawn: Sequence[DrawnTask]) -> bytes:
    content = hashlib.sha256(canonical.encode(what))
    for each in drawn:
        content.update(canonical.encode(tuple(each)) + b"\n")
    return content.digest()
