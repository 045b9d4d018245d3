"""Submits an experiment in one transaction, cancels and resumes it; each of its jobs is an ordinary job."""

import uuid
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import MathragError
from services.orchestrator.experiments.grid import Grid, expand
from shared.experiments import Experiment
from shared.replies import INFRASTRUCTURE
from shared.runtime.lifecycle import cancel_all
from shared.runtime.submit import Draft, Drafting, Submission, in_project_of, insert, repeat_submissions
from shared.settings import Settings
from shared.storage import configurations, experiments
from shared.storage.database import Database, KeyedRequest, run_once

PASSING = sorted(kind.value for kind in INFRASTRUCTURE)
"""Temporary failures: a repetition makes the call again."""


class SubmittedExperiment(NamedTuple):
    """Tells which experiment a submission has created or, with a repeated key, has found."""

    experiment: int
    """Row id of the experiment."""
    replayed: bool
    """Whether an earlier request with the same key created it."""


async def submit_once(
    database: Database, settings: Settings, asked: Experiment, submitted_by: str | None, keyed: KeyedRequest | None
) -> SubmittedExperiment:
    """Create all jobs of a new experiment in one transaction, or return the experiment that the same request created
    before. `submitted_by` is the name of the caller's key.

    The idempotency key belongs to the experiment's first job, which leads to the experiment.

    Raises:
        Invalid, NotFound: a field cannot be used; the message names it.
        Conflict: the name is taken.
        TooLarge, TooMany: a limit of the operator is exceeded.
        IdempotencyMismatch, InProgress: see `idempotency.run_once`.
    """
    grid = await expand_in_thread(database, settings, asked)

    async def make() -> uuid.UUID:
        async with in_project_of(connection, grid.jobs):
            return await insert_all()

    async def insert_all() -> uuid.UUID:
        number = await experiments.insert_experiment(connection, asked.name, asked.model_dump())
        submissions = [msgspec.structs.replace(job, experiment=number, submitted_by=submitted_by) for job in grid.jobs]
        drafts = await draft_jobs(connection, settings, submissions)
        jobs = await insert(connection, settings, drafts)
        cells = [
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
        await experiments.insert_cells(connection, number, cells)
        return jobs[0]

    async with database.transaction() as connection:
        accepted = await run_once(connection, keyed, make)
        number = await experiments.find_experiment_of_job(connection, accepted.job)
    return SubmittedExperiment(number, accepted.replayed)


async def expand_in_thread(database: Database, settings: Settings, asked: Experiment) -> Grid:
    """Expand the experiment in a thread, since there may be many cells."""
    configured = await configurations.load_newest(database)
    work = partial(expand, asked, configured, settings.roles, most=settings.limits.cells)
    return await to_thread.run_sync(work)


async def draft_jobs(connection: AsyncConnection, settings: Settings, jobs: Sequence[Submission]) -> list[Draft]:
    """Look up everything that the experiment's jobs name.

    Raises:
        Invalid, NotFound: a field cannot be used; the message names it and the job.
    """
    drafting, drafts = Drafting(connection, settings), []
    for job in jobs:
        try:
            drafts.append(await drafting.draft(job))
        except MathragError as error:
            raise type(error)(f"{error.message} (job {job.name})", hint=error.hint) from error
    return drafts


async def cancel(database: Database, reference: str) -> int:
    """Cancel every job of the experiment that has not ended, and return its row id. A second call changes nothing.

    Raises:
        NotFound: the experiment does not exist.
    """
    async with database.snapshot() as connection:
        number = await experiments.resolve(connection, reference)
        found = await experiments.view(connection, number)
    await cancel_all(database, sorted({cell.job for cell in found.grid if cell.job}))
    return number


async def resume(database: Database, settings: Settings, reference: str, submitted_by: str | None) -> int:
    """Requeue the jobs of the experiment that failed or were cancelled, or that have samples which failed for a
    temporary reason; return its row id. `submitted_by` is the name of the caller's key.

    Completed work is not run again, and stored replies are reused. A second call changes nothing.

    Raises:
        NotFound: the experiment does not exist.
        TooLarge, TooMany: a limit of the operator is exceeded.
    """
    async with database.transaction() as connection:
        number = await experiments.resolve(connection, reference)
        await experiments.lock_cells(connection, number)
        undone = await experiments.list_undone_jobs(connection, number, PASSING)
        if submissions := await repeat_submissions(connection, undone):
            again = [msgspec.structs.replace(job, experiment=number, submitted_by=submitted_by) for job in submissions]
            async with in_project_of(connection, again):
                jobs = await insert(connection, settings, await draft_jobs(connection, settings, again))
                before = [each.requeued_from for each in submissions]
                await experiments.replace_jobs(connection, number, before, jobs)
    return number
