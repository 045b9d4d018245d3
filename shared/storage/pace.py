"""How long a job will take from here: by the pace at which its samples have ended, and by nothing else.

Samples end in the last stage only, so while the stages before it run there is no pace and no estimate. It is taken
between the first and the last sample that ended, so it holds as of that moment and does not change until the next.
"""

import math
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.sql import sql

FEWEST = 10
"""Samples that must have ended before their pace says anything."""
ENDED = sql("""
    SELECT count(*) AS ended, min(ended_at) AS first, max(ended_at) AS last FROM samples
    WHERE job_id = :job AND kind = 'item' AND state IN {DONE}""")


async def seconds_left(connection: AsyncConnection, job: int, in_progress: int) -> int | None:
    """Seconds until the job's last sample ends; None where nothing can be said."""
    row = (await connection.execute(ENDED, {"job": job})).one()
    return estimate(in_progress, row.ended, row.first, row.last)


def estimate(in_progress: int, ended: int, first: datetime | None, last: datetime | None) -> int | None:
    """Seconds for `in_progress` samples, when `ended` of them took from `first` to `last`."""
    if ended < FEWEST or first is None or last is None or last <= first:
        return None
    return math.ceil(in_progress * (last - first).total_seconds() / (ended - 1))
