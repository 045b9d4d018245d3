"""Subjects and levels of a job's questions: what a list of samples can be filtered by."""

import msgspec
from sqlalchemy import text

from shared.storage.database import Database

MOST = 200
"""Pairs of subject and level; a dataset with more of them has other words in their place."""
OF_JOB = text("""
    SELECT DISTINCT i.subject, i.level FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.public_id = CAST(:job AS uuid) LIMIT :most""")


class Subjects(msgspec.Struct, frozen=True, kw_only=True):
    """In alphabetical order."""

    subjects: list[str]
    levels: list[str]


async def of_job(database: Database, job: str) -> Subjects:
    """Those of the dataset of the job with this id; they never change."""
    async with database.statement() as connection:
        rows = (await connection.execute(OF_JOB, {"job": job, "most": MOST})).all()
    return Subjects(
        subjects=sorted({row.subject for row in rows if row.subject}),
        levels=sorted({row.level for row in rows if row.level}),
    )
