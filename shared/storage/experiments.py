"""Experiments as users see them: the request, the job of each cell, and the jobs' progress.

All counts come from the jobs and their samples. The cells of a purged job stay, with the state `purged`."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict
from shared import canonical
from shared.storage import jobs
from shared.storage.database import Database, Page, cursor_scope, is_usable, load_page, make_not_found, sql

BY_NAME = text("SELECT id, public_id FROM experiments WHERE name = :reference")
BY_RANGE = text("SELECT id, public_id FROM experiments WHERE public_id BETWEEN :low AND :high LIMIT 10")
ONE = text("""
    SELECT public_id, name, CAST(document AS text) AS document, project, created_at
    FROM experiments WHERE id = :experiment""")
CELLS = text("""
    SELECT c.ordinal AS index, c.dataset, c.corpus, c.variant, c.pipeline, CAST(c.point AS text) AS point, c.seed,
        c.refused, j.public_id AS job, j.name AS job_name, j.state
    FROM experiment_cells c LEFT JOIN jobs j ON j.id = c.job_id
    WHERE c.experiment_id = :experiment ORDER BY c.ordinal""")
STANDING = sql("""
    SELECT j.id, j.public_id, j.state, j.total, j.prepared, j.created_at, j.ended_at, n.completed, n.failed,
        n.cancelled, n.unparsed, n.first, n.last
    FROM (SELECT DISTINCT job_id FROM experiment_cells WHERE experiment_id = :experiment) c
    JOIN jobs j ON j.id = c.job_id
    CROSS JOIN LATERAL (
        SELECT {COUNTS_BY_END},
            count(*) FILTER (WHERE s.state = {FAILED} AND s.failure = 'unparsed') AS unparsed,
            min(s.ended_at) FILTER (WHERE s.state IN {DONE}) AS first,
            max(s.ended_at) FILTER (WHERE s.state IN {DONE}) AS last
        FROM samples s WHERE s.job_id = j.id AND s.kind = 'item') n ORDER BY j.id""")
LIST = text("""
    SELECT e.id, e.public_id, e.name, e.project, e.created_at, n.cells, n.refused, s.jobs, s.ended_at
    FROM experiments e
    CROSS JOIN LATERAL (
        SELECT count(*) AS cells, count(refused) AS refused FROM experiment_cells c WHERE c.experiment_id = e.id) n
    CROSS JOIN LATERAL (
        SELECT COALESCE(jsonb_object_agg(j.state, j.n), '{}') AS jobs, max(j.ended_at) AS ended_at FROM (
            SELECT j.state, count(*) AS n, max(j.ended_at) AS ended_at FROM jobs j
            WHERE j.id IN (SELECT job_id FROM experiment_cells c WHERE c.experiment_id = e.id) GROUP BY j.state) j) s
    WHERE e.id < :before ORDER BY e.id DESC LIMIT :n""")
REFUSED, PURGED = "refused", "purged"
"""States of a cell without a job, and of a cell whose job was purged."""
LIVE = ("preparing", "running", "paused", "finalizing", "cancelling")
SCOPE = cursor_scope("experiments")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the grid."""

    index: int
    """Number of the cell, from 0."""
    dataset: str
    """Name of the dataset."""
    corpus: str | None
    """Name of the corpus; null if the cell has none."""
    variant: str
    """Name of the variant."""
    pipeline: str
    """Name of the pipeline."""
    point: dict[str, Any]
    """Values of the grid's parameters in this cell, by path."""
    seed: int
    """Value of the parameter `seed`."""
    job: uuid.UUID | None
    """Id of the job; null if the cell has none. Cells with equal requests share a job."""
    job_name: str | None
    """Name of the job; null if the cell has none."""
    state: str
    """State of the job, or `refused` (the cell got no job) or `purged` (the job was deleted)."""
    refused: str | None
    """Why the cell got no job; null if it got one."""


class Member(NamedTuple):
    """A job of an experiment."""

    id: uuid.UUID
    state: str
    request_counts: jobs.RequestCounts
    gate: jobs.Gate | None
    created_at: datetime
    ended_at: datetime | None
    pace: tuple[int, datetime | None, datetime | None]
    """(completed or failed samples, first end, last end)"""

    @property
    def seconds(self) -> float | None:
        """Duration from submission to end; None while the job runs."""
        return (self.ended_at - self.created_at).total_seconds() if self.ended_at else None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment in a list."""

    id: uuid.UUID
    """Id of the experiment."""
    name: str
    """Name of the experiment."""
    state: str
    """running, cancelling, completed, failed, cancelled or purged: the worst state of its jobs."""
    cells: int
    """Number of cells."""
    refused: int
    """Number of cells that got no job."""
    jobs: dict[str, int]
    """Number of jobs by state."""
    created_at: datetime
    """Time of submission."""
    ended_at: datetime | None
    """End of the last job; null while a job runs."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class Standing(Entry, frozen=True, kw_only=True):
    """An experiment with the progress of its jobs."""

    baseline: str | None
    """Variant with which the others are compared; null if all pairs are compared."""
    request_counts: jobs.RequestCounts
    """Samples of all jobs by state."""
    eta_seconds: int | None
    """Estimated seconds until the last job ends, from the pace of the ended samples; null without an estimate."""
    grid: list[Cell]
    """All cells, in the order of the request."""

    @property
    def ended(self) -> bool:
        """Return whether all of its jobs have ended."""
        return self.state not in ("running", "cancelling")


def state_of(states: Mapping[str, int]) -> str:
    """Return the state of an experiment from the numbers of its jobs in each state."""
    live = [state for state in LIVE if states.get(state)]
    if live:
        return "cancelling" if live == ["cancelling"] else "running"
    return next((state for state in ("failed", "cancelled", "completed") if states.get(state)), PURGED)


async def resolve(connection: AsyncConnection, reference: str) -> int:
    """Find the row id of the experiment with this id, name or prefix of an id.

    Raises:
        NotFound: nothing matches.
        Conflict: several experiments match.
    """
    found: Sequence[Any] = []
    if is_usable(reference):
        found = (await connection.execute(BY_NAME, {"reference": reference})).all()
        if not found and (span := jobs.id_range(reference)):
            found = (await connection.execute(BY_RANGE, {"low": span[0], "high": span[1]})).all()
    if len(found) > 1:
        ids = ", ".join(str(row.public_id) for row in found)
        raise Conflict(f"{reference!r} matches several experiments: {ids}", hint="use one of these ids")
    if not found:
        raise await make_not_found(connection, "experiment", reference)
    return int(found[0].id)


async def get(database: Database, reference: str) -> Standing:
    """Load one experiment from one snapshot."""
    async with database.snapshot() as connection:
        return await view(connection, await resolve(connection, reference))


async def view(connection: AsyncConnection, experiment: int) -> Standing:
    """Load the experiment with this row id."""
    return await load_standing(connection, experiment, await load_members(connection, experiment))


async def load_standing(connection: AsyncConnection, experiment: int, of: Mapping[int, Member]) -> Standing:
    """Load the experiment with this row id, given its jobs."""
    values = {"experiment": experiment}
    row = (await connection.execute(ONE, values)).one()
    cells = []
    for each in (await connection.execute(CELLS, values)).mappings():
        gone = REFUSED if each["refused"] is not None else PURGED
        cells.append(
            Cell(
                point=msgspec.json.decode(each["point"]),
                job=uuid.UUID(str(each["job"])) if each["job"] else None,
                state=each["state"] or gone,
                **{name: each[name] for name in _COPIED},
            )
        )
    found = list(of.values())
    states = Counter(job.state for job in found)
    counted = {
        name: sum(getattr(job.request_counts, name) for job in found) for name in jobs.RequestCounts.__struct_fields__
    }
    state = state_of(states)
    # Estimate the remaining seconds from the common pace of all jobs, because they share their models.
    paces = [job.pace for job in found]
    firsts, lasts = [first for _, first, _ in paces if first], [last for _, _, last in paces if last]
    ended = sum(count for count, _, _ in paces)
    seconds = jobs.estimate_seconds(counted["in_progress"], ended, min(firsts, default=None), max(lasts, default=None))
    return Standing(
        id=uuid.UUID(str(row.public_id)),
        name=row.name,
        state=state,
        cells=len(cells),
        refused=sum(cell.refused is not None for cell in cells),
        jobs=dict(sorted(states.items())),
        created_at=row.created_at,
        project=row.project,
        ended_at=_find_last_end(state, [job.ended_at for job in found]),
        baseline=msgspec.json.decode(row.document)["baseline"],
        request_counts=jobs.RequestCounts(**counted),
        eta_seconds=seconds,
        grid=cells,
    )


async def load_document(connection: AsyncConnection, experiment: int) -> dict[str, Any]:
    """Load the submitted experiment with this row id."""
    row = (await connection.execute(ONE, {"experiment": experiment})).one()
    return dict(msgspec.json.decode(row.document))


async def load_members(connection: AsyncConnection, experiment: int) -> dict[int, Member]:
    """Load the jobs of the experiment's cells by row id."""
    found = (await connection.execute(STANDING, {"experiment": experiment})).all()
    return {
        job.id: Member(
            id=uuid.UUID(str(job.public_id)),
            state=job.state,
            request_counts=jobs.count_requests(
                job.state, job.total, job.completed, job.failed, job.cancelled, job.unparsed
            ),
            gate=jobs.decode_gate(job.prepared),
            created_at=job.created_at,
            ended_at=job.ended_at,
            pace=(job.completed + job.failed, job.first, job.last),
        )
        for job in found
    }


async def list_experiments(database: Database, limit: int, cursor: str | None = None) -> Page[Entry]:
    """List experiments, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, _make_entry)


def _make_entry(row: RowMapping) -> Entry:
    state = state_of(row["jobs"])
    return Entry(
        id=uuid.UUID(str(row["public_id"])),
        state=state,
        jobs=dict(sorted(row["jobs"].items())),
        ended_at=_find_last_end(state, [row["ended_at"]]),
        **{name: row[name] for name in ("name", "cells", "refused", "created_at", "project")},
    )


_COPIED = ("index", "dataset", "corpus", "variant", "pipeline", "seed", "job_name", "refused")


def _find_last_end(state: str, ends: Sequence[datetime | None]) -> datetime | None:
    """Return the end of the last job once all have ended, otherwise None."""
    return None if state in ("running", "cancelling") else max((end for end in ends if end), default=None)


INSERT = text("""
    INSERT INTO experiments (name, document) VALUES (:name, CAST(:document AS json))
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_CELLS = text("""
    INSERT INTO experiment_cells (experiment_id, ordinal, dataset, corpus, variant, pipeline, point, seed, job_id,
                                  refused)
    SELECT :experiment, u.ordinal, u.dataset, u.corpus, u.variant, u.pipeline, CAST(u.point AS json), u.seed, j.id,
        u.refused
    FROM unnest(CAST(:index AS integer[]), CAST(:dataset AS text[]), CAST(:corpus AS text[]), CAST(:variant AS text[]),
        CAST(:pipeline AS text[]), CAST(:point AS text[]), CAST(:seed AS bigint[]), CAST(:job AS uuid[]),
        CAST(:refused AS text[])) u(ordinal, dataset, corpus, variant, pipeline, point, seed, job, refused)
    LEFT JOIN jobs j ON j.public_id = u.job""")
OF_JOB = text("SELECT experiment_id FROM jobs WHERE public_id = :job")
LOCK = text("""
    SELECT ordinal FROM experiment_cells WHERE experiment_id = :experiment ORDER BY ordinal FOR NO KEY UPDATE""")
# A passing failure left these unfinished: only calls without a reply are computed again.
UNDONE = sql("""
    SELECT DISTINCT j.public_id FROM experiment_cells c JOIN jobs j ON j.id = c.job_id
    WHERE c.experiment_id = :experiment AND (j.state IN ('failed', 'cancelled') OR (j.state = 'completed' AND EXISTS (
        SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state = {FAILED} AND s.failure = ANY(:passing))))
    ORDER BY j.public_id""")
REPLACE = text("""
    UPDATE experiment_cells c SET job_id = n.id
    FROM unnest(CAST(:old AS uuid[]), CAST(:new AS uuid[])) u(old, new)
    JOIN jobs o ON o.public_id = u.old JOIN jobs n ON n.public_id = u.new
    WHERE c.experiment_id = :experiment AND c.job_id = o.id""")


async def insert_experiment(connection: AsyncConnection, name: str, document: Any) -> int:
    """Insert an experiment without cells and return its row id.

    Raises:
        Conflict: the name is taken.
    """
    values = {"name": name, "document": canonical.encode(document).decode()}
    made: int | None = (await connection.execute(INSERT, values)).scalar()
    if made is None:
        hint = "mathrag experiment resume continues it; another experiment needs another name"
        raise Conflict(f"`name`: there is an experiment {name!r} already", hint=hint)
    return made


async def insert_cells(connection: AsyncConnection, experiment: int, cells: Sequence[Mapping[str, Any]]) -> None:
    """Insert cells with index, dataset, corpus, variant, pipeline, point, seed, job (public id) and refused."""
    columns: dict[str, Any] = {name: [cell[name] for cell in cells] for name in cells[0]}
    columns["point"] = [canonical.encode(point).decode() for point in columns["point"]]
    await connection.execute(INSERT_CELLS, {"experiment": experiment, **columns})


async def find_experiment_of_job(connection: AsyncConnection, job: uuid.UUID) -> int:
    """Return the row id of the job's experiment."""
    return int((await connection.execute(OF_JOB, {"job": job})).scalar_one())


async def lock_cells(connection: AsyncConnection, experiment: int) -> None:
    """Lock the experiment's cells, so that no other transaction replaces its jobs."""
    await connection.execute(LOCK, {"experiment": experiment})


async def list_undone_jobs(connection: AsyncConnection, experiment: int, passing: Sequence[str]) -> list[uuid.UUID]:
    """List the experiment's jobs that failed, were cancelled, or have samples that failed for a reason in `passing`."""
    values = {"experiment": experiment, "passing": list(passing)}
    return [uuid.UUID(str(job)) for job in (await connection.execute(UNDONE, values)).scalars()]


async def replace_jobs(
    connection: AsyncConnection, experiment: int, old: Sequence[uuid.UUID | None], new: Sequence[uuid.UUID]
) -> None:
    """Assign the cells of each job in `old` to the job at the same place in `new`."""
    await connection.execute(REPLACE, {"experiment": experiment, "old": list(old), "new": list(new)})
