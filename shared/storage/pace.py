"""Estimate a job's remaining time from the pace at which its samples have ended.

Samples end only in the last stage, so there is no estimate during earlier stages. The pace is measured between the
first and the last ended sample, so the estimate holds as of the last one and changes only with the next.
"""

import math
from datetime import datetime
from typing import NamedTuple

from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.statistics.intervals import poisson_interval
from shared.storage.sql import sql

FEWEST = 10
"""Number of ended samples that an estimate needs."""
ENDED = sql("""
    SELECT count(*) AS ended, min(ended_at) AS first, max(ended_at) AS last FROM samples
    WHERE job_id = :job AND kind = 'item' AND state IN {DONE}""")


class TimeLeft(NamedTuple):
    """Estimated seconds until the job's last sample ends, with a 95 % interval."""

    seconds: int
    low: int
    high: int
    """Upper end of the interval, which assumes that samples end independently of each other."""


async def estimate_time_left(connection: AsyncConnection, job: int, in_progress: int) -> TimeLeft | None:
    """Estimate the remaining time; None if too few samples have ended."""
    row = (await connection.execute(ENDED, {"job": job})).one()
    seconds = estimate_seconds(in_progress, row.ended, row.first, row.last)
    if seconds is None:
        return None
    # In a thread, because the first call imports scipy, which takes a second.
    return TimeLeft(seconds, *await to_thread.run_sync(estimate_bounds, in_progress, row.ended, row.first, row.last))


def estimate_seconds(in_progress: int, ended: int, first: datetime | None, last: datetime | None) -> int | None:
    """Estimate the seconds for `in_progress` samples, given that `ended` ones ended between `first` and `last`."""
    if ended < FEWEST or first is None or last is None or last <= first:
        return None
    return math.ceil(in_progress * (last - first).total_seconds() / (ended - 1))


def estimate_bounds(in_progress: int, ended: int, first: datetime, last: datetime) -> tuple[int, int]:
    """Return the estimate's 95 % interval, with the number of samples that end in a time as a Poisson count."""
    few, many = poisson_interval(ended - 1)
    span = in_progress * (last - first).total_seconds()
    return math.floor(span / many), math.ceil(span / few)
