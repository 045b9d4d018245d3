"""An experiment's life: submitted whole or not at all, cancelled, resumed; every job of it is an ordinary one."""

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.experiments.grid import Grid, expand
from shared.contracts.experiments import Experiment
from shared.contracts.replies import INFRASTRUCTURE
from shared.errors import MathragError
from shared.runtime.cancel import cancel_all
from shared.runtime.drafting import Draft, Drafting, Submission
from shared.runtime.requeue import all_again
from shared.runtime.submit import insert
from shared.settings import Settings
from shared.storage import cells, configurations, experiments, idempotency
from shared.storage.database import Database

PASSING = sorted(kind.value for kind in INFRASTRUCTURE)
"""Failures that are no replies: asked again, the call is made again."""


class Accepted(NamedTuple):
    """What a request became."""

    experiment: int
    """Row id."""
    replayed: bool
    """The same request made it before."""


async def submit_once(
    database: Database, settings: Settings, asked: Experiment, keyed: idempotency.Keyed | None
) -> Accepted:
    """All jobs of a new experiment in one transaction, or the experiment that the same request made before.

    The key stands for the experiment's first job, which leads to the experiment.

    Raises:
        Invalid, NotFound: a field cannot be used; the message names it.
        Conflict: the name is taken.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `idempotency.once`.
    """
    grid = await expanded(database, settings, asked)

    async def make() -> uuid.UUID:
        number = await cells.insert(connection, asked.name, asked.model_dump())
        drafts = await drafted(connection, settings, grid.jobs, number)
        jobs = await insert(connection, settings, drafts)
        await cells.insert_cells(connection, number, _rows(grid, jobs))
        return jobs[0]

    async with database.transaction() as connection:
        accepted = await idempotency.once(connection, keyed, make)
        return Accepted(await cells.of_job(connection, accepted.job), accepted.replayed)


async def expanded(database: Database, settings: Settings, asked: Experiment) -> Grid:
    """Cells and jobs; in a thread, since there may be many."""
    configured = await configurations.holding(database)
    work = partial(expand, asked, configured, settings.roles, most=settings.limits.cells)
    return await to_thread.run_sync(work)


async def drafted(
    connection: AsyncConnection, settings: Settings, jobs: Sequence[Submission], number: int | None = None
) -> list[Draft]:
    """The experiment's jobs, all that they name looked up; `number` is its row id, once it has one.

    Raises:
        Invalid, NotFound: a field cannot be used; the message names it and the job.
    """
    drafting = Drafting(connection, settings)
    return [await _draft(drafting, msgspec.structs.replace(job, experiment=number)) for job in jobs]


async def _draft(drafting: Drafting, job: Submission) -> Draft:
    try:
        return await drafting.draft(job)
    except MathragError as error:
        raise type(error)(f"{error.message} (job {job.name})", hint=error.hint) from error


def _rows(grid: Grid, jobs: Sequence[uuid.UUID]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "dataset": cell.place.dataset,
            "corpus": cell.place.corpus,
            "variant": cell.variant.name,
            "pipeline": cell.variant.pipeline,
            "point": cell.point,
            "seed": cell.seed,
            "job": None if cell.job is None else jobs[cell.job],
            "refused": cell.refused,
        }
        for index, cell in enumerate(grid.cells)
    ]


async def cancel(database: Database, reference: str) -> int:
    """Cancel every job of it that has not ended; its row id. Again is harmless.

    Raises:
        NotFound: no such experiment.
    """
    async with database.snapshot() as connection:
        number = await experiments.resolve(connection, reference)
        found = await experiments.view(connection, number)
    await cancel_all(database, sorted({cell.job for cell in found.grid if cell.job}))
    return number


async def resume(database: Database, settings: Settings, reference: str) -> int:
    """Requeue its jobs that failed or were cancelled, or hold samples that failed for a passing reason; its row id.

    What ended well is not run again, and replies that are there are read. Again is harmless.

    Raises:
        NotFound: no such experiment.
        TooLarge, TooMany: more than the operator allows.
    """
    async with database.transaction() as connection:
        number = await experiments.resolve(connection, reference)
        await cells.lock(connection, number)
        submissions = await all_again(connection, await cells.undone(connection, number, PASSING))
        if submissions:
            jobs = await insert(connection, settings, await drafted(connection, settings, submissions, number))
            await cells.replace(connection, number, [each.requeued_from for each in submissions], jobs)
    return number
