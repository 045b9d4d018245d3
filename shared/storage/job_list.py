"""List jobs, filtered and sorted, page by page. Only the samples of the page's jobs are counted."""

from typing import Literal

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import awaited_outages, jobs, pages
from shared.storage.database import Database
from shared.storage.jobs import Job

Sort = Literal["newest", "name", "state"]
"""Sort keys that a page's cursor can continue from; counted values such as accuracy cannot be one."""

_STATE = (
    "array_position(ARRAY['running', 'preparing', 'finalizing', 'cancelling', 'paused', 'failed', 'cancelled',"
    " 'completed'], {})"
)
"""Sort order of states: live jobs first, then those that did not end well."""
_NOW, _THEN = _STATE.format("j.state"), _STATE.format("CAST(:key AS text)")


def _statement(key: str, after: str, order: str) -> TextClause:
    return text(f"""
        SELECT j.id, {key} AS key FROM jobs j JOIN datasets d ON d.id = j.dataset_id
        LEFT JOIN corpora k ON k.id = j.corpus_id LEFT JOIN experiments x ON x.id = j.experiment_id
        WHERE NOT j.online AND (CAST(:before AS bigint) IS NULL OR {after})
            AND (CAST(:state AS text) IS NULL OR j.state = :state) AND (CAST(:name AS text) IS NULL OR j.name = :name)
            AND (CAST(:name_contains AS text) IS NULL OR strpos(lower(j.name), lower(:name_contains)) > 0)
            AND (CAST(:pipeline AS text) IS NULL OR j.pipeline = :pipeline)
            AND (CAST(:dataset AS text) IS NULL OR d.name = :dataset)
            AND (CAST(:corpus AS text) IS NULL OR k.name = :corpus)
            AND (CAST(:experiment AS text) IS NULL OR x.name = :experiment)
            AND (CAST(:submitted_by AS text) IS NULL OR j.code ->> 'submitted_by' = :submitted_by)
        ORDER BY {order} LIMIT :n""")  # noqa: S608 - parts of this module alone


SORTED: dict[Sort, TextClause] = {
    "newest": _statement("''", "j.id < :before", "j.id DESC"),
    "name": _statement("j.name", "(j.name, j.id) > (:key, :before)", "j.name, j.id"),
    "state": _statement("j.state", f"({_NOW} > {_THEN} OR {_NOW} = {_THEN} AND j.id < :before)", f"{_NOW}, j.id DESC"),
}


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list; None accepts any value."""

    state: str | None = None
    pipeline: str | None = None
    dataset: str | None = None
    corpus: str | None = None
    name: str | None = None
    name_contains: str | None = None
    """Part of the name, ignoring case."""
    experiment: str | None = None
    submitted_by: str | None = None
    """Name of a key."""


EVERY = JobSelection()


class _Picked(msgspec.Struct, frozen=True):
    """A job of a page with its sort key."""

    id: int
    key: str


async def list_jobs(
    database: Database, limit: int, cursor: str | None = None, filters: JobSelection = EVERY, sort: Sort = "newest"
) -> pages.Page[Job]:
    """List jobs without stages and estimates.

    Raises:
        BadRequest: the cursor belongs to another list, other filters or another order.
    """
    scope = pages.cursor_scope("jobs", sort=sort, **msgspec.structs.asdict(filters))
    key, before = pages.decode_sorted_cursor(cursor, scope) if cursor else ("", None)
    async with database.transaction() as connection:
        values = {"key": key, "before": before, "n": limit + 1, **msgspec.structs.asdict(filters)}
        rows = (await connection.execute(SORTED[sort], values)).all()
        picked = [_Picked(row.id, row.key) for row in rows]
        found = await _load_jobs(connection, [each.id for each in picked[:limit]])
    last = picked[limit - 1] if len(picked) > limit else None
    following = pages.encode_cursor(scope, last.id, sorted_by=last.key) if last else None
    return pages.Page(data=found, next_cursor=following)


async def _load_jobs(connection: AsyncConnection, ids: list[int]) -> list[Job]:
    """Load these jobs in this order."""
    found = await jobs.load_without_stages(connection, ids)
    away = await awaited_outages.find_waiting_of_jobs(connection, [row for row, job in found.items() if not job.ended])
    return [msgspec.structs.replace(found[row], waiting=away.get(row, ())) for row in ids]
