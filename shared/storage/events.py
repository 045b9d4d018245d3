"""What happened to a job: every change of its state, and how it stands, all of one instant."""

from datetime import datetime

import msgspec
from sqlalchemy import text

from shared.storage import jobs
from shared.storage.database import Database

CHANGES = text("SELECT version, state, reason, at FROM job_events WHERE job_id = :job ORDER BY version")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The job came into this state, or was renamed, ranked or described anew in it."""

    version: int
    state: str
    reason: str | None
    at: datetime


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one instant, and all that happened to it before."""

    row: int
    """jobs.id"""
    job: jobs.Job
    changes: list[Change]


async def look(database: Database, job: int) -> Picture:
    """The job with this row id, now."""
    async with database.snapshot() as connection:
        rows = (await connection.execute(CHANGES, {"job": job})).mappings()
        changes = [Change(**row) for row in rows]
        return Picture(row=job, job=await jobs.view(connection, job), changes=changes)
