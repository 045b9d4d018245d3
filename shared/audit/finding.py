"""What an audit finds: the rows, selected by a statement, that violate an invariant."""

from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import fill_names

MINE = fill_names("mine AS MATERIALIZED ({CALLS_OF_JOB})")
"""A WITH item: the calls that the job's samples refer to, whoever executed them."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that violate an invariant."""

    invariant: str
    """Number of the invariant, such as "I1"."""
    message: str
    """What is wrong with each of the rows."""
    rows: tuple[str, ...]
    """Table and id of each row, such as "attempts 17"."""
    items: tuple[int, ...] = ()
    """The first five items of the dataset that the rows belong to, from 0, as in `mathrag sample show JOB INDEX`."""
    item_count: int = 0
    """Number of all items that the rows belong to."""
    source_changed: bool = False
    """Whether the job ran from another source than this version has, so that its rows cannot be verified here."""


class AuditedJob(NamedTuple):
    """One job under audit, with the connection whose snapshot all checks read."""

    connection: AsyncConnection
    job: RowMapping

    async def find(self, invariant: str, message: str, statement: TextClause, **values: object) -> list[Violation]:
        """Return a violation with the rows that `statement` selects, or an empty list."""
        rows = (await self.connection.execute(statement, {"job": self.job["id"], **values})).scalars()
        named = tuple(rows)
        return [Violation(invariant=invariant, message=message, rows=named)] if named else []


def report_unchecked(invariant: str, error: Exception, row: str) -> Violation:
    """Return a violation that tells why a check could not be done."""
    why = " ".join(str(getattr(error, "orig", None) or error).split())[:500]
    message = f"could not be checked: {type(error).__name__}: {why}"
    return Violation(invariant=invariant, message=message, rows=(row,))


def select_over_job_calls(select: str, *items: str) -> TextClause:
    """Return `select` with the WITH item `mine`, and further items that build on it."""
    return text(f"WITH {', '.join((MINE, *items))} {select}")
