"""How long a job will take from here: by the pace at which its samples have ended, and by nothing else.

Samples end in the last stage only, so while the stages before it run there is no pace and no estimate. It is taken
between the first and the last sample that ended, so it holds as of that moment and does not change until the next.
"""

import math
from datetime import datetime
from typing import NamedTuple

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.statistics.intervals import poisson
from shared.storage.sql import sql

FEWEST = 10
"""Samples that must have ended before their pace says anything."""
ENDED = sql("""
    SELECT count(*) AS ended, min(ended_at) AS first, max(ended_at) AS last FROM samples
    WHERE job_id = :job AND kind = 'item' AND state IN {DONE}""")


class TimeLeft(NamedTuple):
    """Seconds until the job's last sample ends."""

    seconds: int
    low: int
    high: int
    """95 %, as if samples ended independently of each other."""


async def time_left(connection: AsyncConnection, job: int, in_progress: int) -> TimeLeft | None:
    """None where nothing can be said."""
    row = (await connection.execute(ENDED, {"job": job})).one()
    seconds = estimate(in_progress, row.ended, row.first, row.last)
    if seconds is None:
        return None
    # In a thread: it imports scipy once, which takes a second.
    return TimeLeft(seconds, *await to_thread.run_sync(bounds, in_progress, row.ended, row.first, row.last))


def estimate(in_progress: int, ended: int, first: datetime | None, last: datetime | None) -> int | None:
    """Seconds for `in_progress` samples, when `ended` of them took from `first` to `last`."""
    if ended < FEWEST or first is None or last is None or last <= first:
        return None
    return math.ceil(in_progress * (last - first).total_seconds() / (ended - 1))


def bounds(in_progress: int, ended: int, first: datetime, last: datetime) -> tuple[int, int]:
    """The 95 % interval of such an estimate: how many samples end in that time is a Poisson count."""
    few, many = poisson(ended - 1)
    span = in_progress * (last - first).total_seconds()
    return math.floor(span / many), math.ceil(span / few)
