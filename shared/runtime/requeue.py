"""Requeue an ended job: submit the same request as a new job.

Ended states are final, so the old job stays unchanged. Replies are shared: only what failed for a passing reason is
computed again. A job with `reuse: none` shares nothing, so everything is computed again.
"""

import uuid
from collections.abc import Sequence

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, NotFound, Unreadable
from shared.pipelines.imported import IMPORTED
from shared.pipelines.mine_rules import MINE_RULES
from shared.runtime.job_names import make_next_name
from shared.runtime.submission import Submission
from shared.storage.database import Database
from shared.storage.decoding import try_decode_params

SOURCE = text("""
    SELECT j.public_id, j.name, j.pipeline, j.params, j.repeats, j.reuse, j.rank,
        CAST(j.code ->> 'limit' AS integer) AS "limit", j.metadata, j.online, j.state,
        j.ended_at, d.name AS dataset, k.name AS corpus,
        (SELECT COALESCE(jsonb_object_agg(p.key, m.name), '{}') FROM jsonb_each(j.pins) p
         JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
         WHERE p.key IN ('judge', 'generate')) AS models
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    WHERE j.public_id = ANY(:jobs) ORDER BY j.id""")


async def repeat_submission(database: Database, public_id: uuid.UUID) -> Submission:
    """Return a submission that repeats an ended job, with the newest models of the same names.

    Raises:
        NotFound: no such job.
        Conflict: it has not ended.
        Unreadable: this release cannot read its parameters.
    """
    row = await _find_source(database, public_id)
    if row["ended_at"] is None:
        raise Conflict(f"job {public_id} is {row['state']}, so it cannot be requeued", hint="wait for it, or cancel it")
    if row["pipeline"] == MINE_RULES:
        hint = "mine the bank again: mathrag rules mine"
        raise Conflict(f"job {public_id} mined the rules of a bank, so it cannot be requeued by itself", hint=hint)
    if row["pipeline"] == IMPORTED:
        hint = "import the file again, under another name: mathrag job import"
        raise Conflict(f"job {public_id} grades imported answers, so there is nothing to ask again", hint=hint)
    return _submission(row)


async def copy_submission(database: Database, public_id: uuid.UUID) -> Submission:
    """Return a copy of a job's submission, whatever the job's state, as a starting point for a changed one.

    Raises:
        NotFound: no such job.
        Unreadable: this release cannot read its parameters.
    """
    return _submission(await _find_source(database, public_id))


async def _find_source(database: Database, public_id: uuid.UUID) -> RowMapping:
    async with database.transaction() as connection:
        row = (await connection.execute(SOURCE, {"jobs": [public_id]})).mappings().first()
    if row is None:
        raise NotFound(f"no job {public_id}", hint="mathrag job list")
    return row


async def repeat_submissions(connection: AsyncConnection, public_ids: Sequence[uuid.UUID]) -> list[Submission]:
    """Return submissions that repeat several ended jobs, in the order in which the jobs were submitted."""
    return [_submission(row) for row in (await connection.execute(SOURCE, {"jobs": list(public_ids)})).mappings()]


def _submission(row: RowMapping) -> Submission:
    params, problem = try_decode_params(row["params"], f"the parameters of job {row['public_id']}")
    if params is None:
        raise Unreadable(str(problem), hint="submit a new job with parameters of this release")
    copied = ("dataset", "corpus", "pipeline", "limit", "repeats", "reuse", "rank", "metadata", "online", "models")
    return Submission(
        name=make_next_name(row["name"]),
        params=params,
        requeued_from=uuid.UUID(str(row["public_id"])),
        **{field: row[field] for field in copied},
    )
