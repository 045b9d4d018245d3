"""Subjects and levels of a job's questions, for the filters of its samples."""

import msgspec
from sqlalchemy import text

from shared.storage.database import Database

MOST = 200
"""Largest number of pairs of subject and level; a dataset with more uses these fields for something else."""
OF_JOB = text("""
    SELECT DISTINCT i.subject, i.level FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.public_id = CAST(:job AS uuid) LIMIT :most""")


class Subjects(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects and levels, sorted."""

    subjects: list[str]
    levels: list[str]


async def load_subjects(database: Database, job: str) -> Subjects:
    """Load the subjects and levels of the job's dataset, which never change."""
    async with database.statement() as connection:
        rows = (await connection.execute(OF_JOB, {"job": job, "most": MOST})).all()
    return Subjects(
        subjects=sorted({row.subject for row in rows if row.subject}),
        levels=sorted({row.level for row in rows if row.level}),
    )
