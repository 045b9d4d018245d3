"""Lists of jobs: filtered, sorted, page by page. Which jobs a page holds is found first: only they are counted."""

from typing import Literal

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import jobs, pages, waiting
from shared.storage.database import Database
from shared.storage.jobs import Job

Sort = Literal["newest", "name", "state"]
"""By what keys a page can go on from; what is counted, such as accuracy, is none."""

_STATE = (
    "array_position(ARRAY['running', 'preparing', 'finalizing', 'cancelling', 'paused', 'failed', 'cancelled',"
    " 'completed'], {})"
)
"""What goes on first, then what did not end well."""
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
        ORDER BY {order} LIMIT :n""")  # noqa: S608 - parts of this module alone


SORTED: dict[Sort, TextClause] = {
    "newest": _statement("''", "j.id < :before", "j.id DESC"),
    "name": _statement("j.name", "(j.name, j.id) > (:key, :before)", "j.name, j.id"),
    "state": _statement("j.state", f"({_NOW} > {_THEN} OR {_NOW} = {_THEN} AND j.id < :before)", f"{_NOW}, j.id DESC"),
}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a list holds; None: whatever it is."""

    state: str | None = None
    pipeline: str | None = None
    dataset: str | None = None
    corpus: str | None = None
    name: str | None = None
    name_contains: str | None = None
    """A part of the name, in upper or lower case."""
    experiment: str | None = None


EVERY = Filters()


class _Picked(msgspec.Struct, frozen=True):
    """A job of a page, and what it is sorted by."""

    id: int
    key: str


async def listed(
    database: Database, limit: int, cursor: str | None = None, filters: Filters = EVERY, sort: Sort = "newest"
) -> pages.Page[Job]:
    """Jobs without stages and estimates.

    Raises:
        BadRequest: the cursor is of another list, of other filters, or of another order.
    """
    scope = pages.scope("jobs", sort=sort, **msgspec.structs.asdict(filters))
    key, before = pages.decode_sorted(cursor, scope) if cursor else ("", None)
    async with database.transaction() as connection:
        values = {"key": key, "before": before, "n": limit + 1, **msgspec.structs.asdict(filters)}
        rows = (await connection.execute(SORTED[sort], values)).all()
        picked = [_Picked(row.id, row.key) for row in rows]
        found = await _counted(connection, [each.id for each in picked[:limit]])
    last = picked[limit - 1] if len(picked) > limit else None
    following = pages.encode(scope, last.id, sorted_by=last.key) if last else None
    return pages.Page(data=found, next_cursor=following)


async def _counted(connection: AsyncConnection, ids: list[int]) -> list[Job]:
    """These jobs in this order."""
    found = await jobs.without_stages(connection, ids)
    away = await waiting.of_jobs(connection, [row for row, job in found.items() if not job.ended])
    return [msgspec.structs.replace(found[row], waiting=away.get(row, ())) for row in ids]
