"""A violation that an audit finds, and the items that it concerns."""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import fill_names

MINE = fill_names("mine AS MATERIALIZED ({CALLS_OF_JOB})")
"""A WITH item: the calls that the job's samples refer to, including calls that another job executed."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that violate an invariant."""

    invariant: str
    """Number of the invariant, such as "I1"."""
    message: str
    """Description of the error in the rows."""
    rows: tuple[str, ...]
    """Table and id of each row, such as "attempts 17"."""
    items: tuple[int, ...] = ()
    """The first five items of the dataset that the rows belong to, from 0, as in `mathrag sample show JOB INDEX`."""
    item_count: int = 0
    """Number of all items that the rows belong to."""
    source_changed: bool = False
    """Whether the job ran another version of its pipeline, so that its rows cannot be verified here."""


class AuditedJob(NamedTuple):
    """One job under audit, with the connection whose snapshot all checks read."""

    connection: AsyncConnection
    job: RowMapping
    damaged: Sequence[str] = ()
    """Parts of the job's archive that cannot be read."""

    async def find(self, invariant: str, message: str, statement: TextClause, **values: object) -> list[Violation]:
        """Return a violation with the rows that `statement` selects, or an empty list."""
        found = await self.connection.execute(statement, {"job": self.job["id"], **values})
        return make_violations(invariant, message, found.scalars())

    async def read_batches(
        self, statement: TextClause, key: str, first: int, at_once: int, **values: object
    ) -> AsyncIterator[Sequence[RowMapping]]:
        """Yield all rows of `statement`, which selects the first `:n` with a larger `key` than `:after`."""
        after, rows = first, None
        while rows is None or len(rows) == at_once:
            batch = {"job": self.job["id"], **values, "after": after, "n": at_once}
            rows = (await self.connection.execute(statement, batch)).mappings().all()
            if rows:
                yield rows
                after = rows[-1][key]


def make_violations(invariant: str, message: str, rows: Iterable[str]) -> list[Violation]:
    """Return a violation with these rows, or an empty list without rows."""
    named = tuple(rows)
    return [Violation(invariant=invariant, message=message, rows=named)] if named else []


def make_unchecked_violation(invariant: str, error: Exception, row: str) -> Violation:
    """Return a violation that tells why a check could not be done."""
    why = " ".join(str(getattr(error, "orig", None) or error).split())[:500]
    message = f"could not be checked: {type(error).__name__}: {why}"
    return Violation(invariant=invariant, message=message, rows=(row,))


def select_over_job_calls(select: str, *items: str) -> TextClause:
    """Return `select` with the WITH item `mine`, and further items that build on it."""
    return text(f"WITH {', '.join((MINE, *items))} {select}")


MAX_NAMED_ITEMS = 5
"""The most items that a violation lists."""
# A record has the id of its sample. All rows of one violation at once.
ITEMS = text("""
    WITH touched AS (
        SELECT id FROM unnest(CAST(:samples AS bigint[])) u(id)
        UNION SELECT t.sample_id FROM steps t WHERE t.call_id = ANY(CAST(:calls AS bigint[]))
        UNION SELECT t.sample_id FROM attempts a JOIN steps t ON t.call_id = a.call_id
            WHERE a.id = ANY(CAST(:attempts AS bigint[])))
    SELECT s.ordinal FROM samples s JOIN touched u ON u.id = s.id WHERE s.job_id = :job AND s.kind = 'item'
    UNION SELECT ordinal FROM unnest(CAST(:items AS integer[])) i(ordinal) ORDER BY ordinal""")
_ROW = re.compile(r"(?P<table>samples|records|steps|calls|attempts|items) (?P<id>\d+)")
_KEPT_AS = {"records": "samples", "steps": "samples"}


async def add_items(audit: AuditedJob, found: Sequence[Violation]) -> list[Violation]:
    """Add to each violation the items that its rows belong to; a violation of no sample has none."""
    completed = []
    for violation in found:
        ids: defaultdict[str, list[int]] = defaultdict(list)
        for row in filter(None, map(_ROW.match, violation.rows)):
            ids[_KEPT_AS.get(row["table"], row["table"])].append(int(row["id"]))
        values = {table: ids[table] for table in ("samples", "calls", "attempts", "items")}
        items: Sequence[int] = ()
        if any(values.values()):
            items = (await audit.connection.execute(ITEMS, {"job": audit.job["id"], **values})).scalars().all()
        named = tuple(items[:MAX_NAMED_ITEMS])
        completed.append(msgspec.structs.replace(violation, items=named, item_count=len(items)))
    return completed
