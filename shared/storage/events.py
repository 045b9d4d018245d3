"""Snapshots of a job with the history of its states."""

from datetime import datetime

import msgspec
from sqlalchemy import text

from shared.storage import jobs
from shared.storage.database import Database

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
    job: jobs.Job
    changes: list[JobStateChange]


async def take_snapshot(database: Database, job: int) -> JobSnapshot:
    """Take a snapshot of the job with this row id."""
    async with database.snapshot() as connection:
        rows = (await connection.execute(CHANGES, {"job": job})).mappings()
        changes = [JobStateChange(**row) for row in rows]
        return JobSnapshot(row=job, job=await jobs.view(connection, job), changes=changes)
