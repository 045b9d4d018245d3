"""Find the outages that jobs wait for: those of models whose calls their samples need next."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.plugins import PluginPin
from shared.plugins import loading
from shared.storage.sql import sql

# Outages are rare; without one, no row of the jobs is read.
WAITING = sql("""
    SELECT j.id AS job, o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o CROSS JOIN unnest(CAST(:jobs AS bigint[])) j(id)
    WHERE EXISTS (
        SELECT 1 FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        JOIN queue q ON q.call_id = t.call_id AND q.model_id = o.model_id WHERE s.job_id = j.id AND s.state = {WAITING})
    GROUP BY j.id, o.what ORDER BY min(o.since), o.what""")
# What a job has pinned and this process has not, in the order in which it is pinned.
LACKING = sql("""
    SELECT j.id AS job, j.name, p.value AS pin FROM jobs j CROSS JOIN LATERAL jsonb_array_elements(j.code -> 'plugins')
        WITH ORDINALITY p(value, place)
    WHERE (CAST(:jobs AS bigint[]) IS NULL OR j.id = ANY(:jobs)) AND j.ended_at IS NULL AND j.state IN {RUNNABLE}
        AND NOT {HAS_PLUGINS} ORDER BY j.id, p.place""")
ALL = text("""
    SELECT o.what, max(o.said) AS said, min(o.since) AS since, min(o.next_try) AS next_try
    FROM outages o GROUP BY o.what ORDER BY min(o.since), o.what""")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A server, index or plug-in that is not available while calls or samples wait for it."""

    what: str
    said: str
    """Error of the last probe."""
    since: datetime
    next_try: datetime | None
    """In the past: it is being tried, or about to be. Null: at the next start of the service, of a plug-in."""


class Lacking(NamedTuple):
    """A plug-in that a job needs and that this process lacks."""

    job: int
    name: str
    """Name of the job."""
    pin: PluginPin
    said: str
    """Why, and what to do."""


async def find_waiting_of_jobs(connection: AsyncConnection, jobs: Sequence[int]) -> dict[int, tuple[Waiting, ...]]:
    """Find the outages that each of these jobs waits for; jobs that wait for none are left out."""
    found: defaultdict[int, tuple[Waiting, ...]] = defaultdict(tuple)
    for row in await connection.execute(WAITING, {"jobs": list(jobs)}):
        found[row.job] += (Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try),)
    for each in await list_lacking_plugins(connection, jobs):
        found[each.job] += (
            Waiting(what=f"plug-in {each.pin}", said=each.said, since=loading.get_loaded().at, next_try=None),
        )
    return found


async def list_lacking_plugins(connection: AsyncConnection, jobs: Sequence[int] | None = None) -> list[Lacking]:
    """List plug-ins that these live jobs need and this process lacks; None stands for all live jobs."""
    values = {"jobs": None if jobs is None else list(jobs), "plugins": loading.encode_usable_pins()}
    rows = (await connection.execute(LACKING, values)).all()
    pins = [(row, msgspec.convert(row.pin, PluginPin)) for row in rows]
    return [
        Lacking(row.job, row.name, pin, reason)
        for row, pin in pins
        if (reason := loading.explain_absence(pin)) is not None
    ]


async def find_all_waiting(connection: AsyncConnection) -> list[Waiting]:
    """List the outages that any call waits for, the oldest first."""
    rows = await connection.execute(ALL)
    return [Waiting(what=row.what, said=row.said, since=row.since, next_try=row.next_try) for row in rows]
