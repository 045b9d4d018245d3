"""Load the costs of several jobs with a few statements; `reports/work.py` has the details of one job."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.sql import sql

CALLS = text("""
    WITH mine AS (
        SELECT s.job_id, t.call_id, bool_or(t.created) AS made FROM samples s JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = ANY(:jobs) GROUP BY s.job_id, t.call_id)
    SELECT mine.job_id, c.role, count(*) FILTER (WHERE mine.made) AS made,
        count(*) FILTER (WHERE NOT mine.made) AS reused
    FROM mine JOIN calls c ON c.id = mine.call_id GROUP BY mine.job_id, c.role ORDER BY mine.job_id, c.role""")
LOADS = sql("""
    SELECT DISTINCT s.job_id, r.epoch, c.model_id, loading.n
    FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
    JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
    JOIN residencies r ON r.epoch = a.epoch CROSS JOIN {LOADS_OF_MODEL} WHERE s.job_id = ANY(:jobs)""")
FAILURES = sql("""
    SELECT job_id, failure, count(*) AS samples FROM samples
    WHERE job_id = ANY(:jobs) AND kind = 'item' AND state = {FAILED}
    GROUP BY job_id, failure ORDER BY job_id, failure""")

CountsByJob = dict[int, dict[str, int]]
"""Counts by job, then by role or kind."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Costs by row id of the job; jobs without calls are left out."""

    made: CountsByJob
    """Calls that the job enqueued, by role."""
    reused: CountsByJob
    """Calls that another job had made, by role."""
    loads: dict[int, set[tuple[int, int, int]]]
    """(epoch, model, number of the load in that epoch) of the calls that the job enqueued."""
    failures: CountsByJob
    """Failed samples by kind of failure."""


async def load_costs(connection: AsyncConnection, jobs: Sequence[int]) -> Costs:
    """Load the costs of these jobs (row ids)."""
    values = {"jobs": sorted(set(jobs))}
    made: defaultdict[int, dict[str, int]] = defaultdict(dict)
    reused: defaultdict[int, dict[str, int]] = defaultdict(dict)
    loads: defaultdict[int, set[tuple[int, int, int]]] = defaultdict(set)
    for row in await connection.execute(CALLS, values):
        made[row.job_id][row.role], reused[row.job_id][row.role] = row.made, row.reused
    for row in await connection.execute(LOADS, values):
        loads[row.job_id].add((row.epoch, row.model_id, row.n))
    return Costs(
        made=dict(made), reused=dict(reused), loads=dict(loads), failures=await count_failures(connection, jobs)
    )


async def count_failures(connection: AsyncConnection, jobs: Sequence[int]) -> CountsByJob:
    """Count the failed samples of these jobs (row ids) by kind of failure."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in await connection.execute(FAILURES, {"jobs": sorted(set(jobs))}):
        found[row.job_id][row.failure] = row.samples
    return dict(found)
